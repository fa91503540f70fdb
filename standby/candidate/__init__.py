"""A supervisor of several hosts before it leads: it watches the shared store, and takes over (design 0024)."""
