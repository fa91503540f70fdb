"""The places where a supervisor keeps what it has decided, the checkpoints that are complete, and logs of hosts."""
