"""The loop that performs a task's effects: it reads the clock, waits for sockets and disk, and feeds events back."""
