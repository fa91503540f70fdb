"""The supervisor's logic: events in, effects out.  Nothing here performs I/O or reads a clock."""
