"""The root of all processes of a job on this machine, which is either `causal run` or an agent."""
