"""The supervisor and the host agent of a job."""
