"""The code of a run (D12): archived when the run begins, loaded from the archive by every process of it."""
