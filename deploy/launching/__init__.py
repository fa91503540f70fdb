"""The root of all processes of a job on this machine: `causal run` or an agent."""
