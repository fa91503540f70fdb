"""A supervisor of a multi-host job before it leads: it watches the shared store and may take over (design 0024)."""
