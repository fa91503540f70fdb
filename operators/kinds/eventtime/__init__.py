"""Event time: watermarks of each input, what generates them, and idle inputs."""
