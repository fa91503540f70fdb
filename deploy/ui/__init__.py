"""`causal ui`: a web page that shows a job while it runs and after it has ended, and can kill its processes."""
