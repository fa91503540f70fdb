"""The jobs on a machine: their directories, the code that each runs, and which job a command refers to."""
