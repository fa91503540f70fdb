"""Performances of a pipeline outside its job: from a checkpoint, on input that the job has read, without effects."""
