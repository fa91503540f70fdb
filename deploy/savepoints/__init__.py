"""Savepoints, and how a job begins with one: as another version, as the version before, or as a new job."""
