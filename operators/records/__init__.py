"""Functions for single records and keys: key groups, copies, arithmetic, time conversion and cutting into chunks."""
