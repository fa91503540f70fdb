"""Measures recordings: what recording costs a job, and how fast its recording is replayed, searched and compared."""
