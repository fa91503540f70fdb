"""Savepoints, and how a job begins from one: as another version, as its previous version, or as a new job."""
