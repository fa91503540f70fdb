"""The processes of a job: the worker, its part in the membership protocol, standby images, rescaling, rehearsals."""
