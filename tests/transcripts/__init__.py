"""Golden transcripts: twenty-three scenarios as text, commands in, the whole conversation out (see README.md)."""
