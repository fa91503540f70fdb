"""The place of the rows of console sinks until `causal run` prints them."""

DIRECTORY = "console"
"""The directory, in that of the job, with a `.jsonl` file per sink task."""
