"""Operators per record or key: `process`, `count` and `reduce`, broadcast rules, and calls to the outside world."""
