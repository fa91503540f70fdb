"""The jobs of a machine: their directories, the code that each runs, and which one a command means."""
