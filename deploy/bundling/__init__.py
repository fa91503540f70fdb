"""`causal bundle`: a part of a recording in one file, which replays elsewhere (0058)."""
