"""Shows where CPU time goes, part by part, and what a batch makes the interpreter do."""
