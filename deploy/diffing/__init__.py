"""`causal diff`: new code on the recorded stream of a job, and the report of what it changes (0056)."""
