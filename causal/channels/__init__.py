"""The conversation between two tasks: sessions as tables, frames, credit, replay, and the channel of a sink."""
