"""A sink that writes rows to streams of a Redis server."""
