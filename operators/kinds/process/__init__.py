"""Operators per record or key: `process`, `count` and `reduce`, broadcast rules, calls of the outside world."""
