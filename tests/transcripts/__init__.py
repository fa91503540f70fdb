"""Golden transcripts: twenty-two scenarios as text, commands in, the whole conversation out (see README.md)."""
