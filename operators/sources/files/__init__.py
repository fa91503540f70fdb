"""Files as a source: the choice of files, their order, and their rows at positions that never change."""
