"""One task as a state machine: events in, effects out, live and in a replay."""
