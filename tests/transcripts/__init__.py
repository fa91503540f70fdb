"""Golden transcripts: twenty-one scenarios as text, commands in, the whole conversation out (see README.md)."""
