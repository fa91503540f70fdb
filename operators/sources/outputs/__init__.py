"""The output of another job as a source: its rows as they appear, and the rows that it withdraws."""
