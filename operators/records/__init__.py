"""Functions for single records and keys: keys and their groups, copies, arithmetic, seconds, cutting into chunks."""
