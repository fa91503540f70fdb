"""Records and their bytes: values, batches, rows, and columns of vectors."""
