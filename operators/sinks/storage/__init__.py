"""Files that a process may die in the middle of: locks, journals, space given back."""
