"""Jobs of several hosts: real processes, each host in a network namespace and a clock of its own."""
