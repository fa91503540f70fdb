"""The places where a supervisor stores its decisions, the manifests of complete checkpoints, and the logs of hosts."""
