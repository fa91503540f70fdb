"""Event time: watermarks of each input, their generators, and idle inputs."""
