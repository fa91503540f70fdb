"""Tables: rows by key whose changes are a stream of revisions (key, old, new); a reader retracts the old value."""
