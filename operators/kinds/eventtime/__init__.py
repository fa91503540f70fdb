"""Event time: the watermarks of each input, watermark generators, and idle inputs."""
