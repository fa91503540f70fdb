"""The `causal` command line, which plans, runs, observes and changes jobs."""
