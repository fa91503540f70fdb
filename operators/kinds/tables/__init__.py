"""Tables: rows by key whose changes are a stream of revisions (key, old, new); what reads one takes old back."""
