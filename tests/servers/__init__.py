"""Sinks on real servers, which the tests start, kill, stop and restart; without its server a test is skipped."""
