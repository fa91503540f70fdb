"""Records and their bytes: values, batches, rows, columns of vectors."""
