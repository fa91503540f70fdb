"""Files as a source: which files, in what order, and the rows of each at positions that never change."""
