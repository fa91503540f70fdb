"""The processes of one host: starting, forking, watching and reaping them."""
