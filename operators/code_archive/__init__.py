"""The code of a run (D12): archived when the run begins, and loaded from the archive by every process of the run."""
