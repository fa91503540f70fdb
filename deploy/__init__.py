"""The command line: plans, runs, watches and changes jobs."""
