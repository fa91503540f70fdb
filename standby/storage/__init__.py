"""The places where a supervisor keeps its decisions, the manifests of complete checkpoints, and logs of hosts."""
