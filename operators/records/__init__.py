"""Functions of one record or key: keys and their groups, copies, arithmetic, seconds, cutting into chunks."""
