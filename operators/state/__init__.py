"""Keyed state: tables and their snapshots, declared states, timers, undo, time to live, and state on disk."""
