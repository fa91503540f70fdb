"""`causal ui`: a page in the browser that shows a job while it runs and after it has ended, and can break it."""
