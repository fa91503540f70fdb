"""The connections of a job: messages between supervisor, agents and workers, and the keys that guard them."""
