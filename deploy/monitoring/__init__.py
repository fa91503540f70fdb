"""Shows a job from outside: its status, metrics, traces and logs, and the state it stores for a key."""
