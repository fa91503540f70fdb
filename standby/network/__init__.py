"""The connections of a job: messages between the supervisor, agents and workers, and the keys that protect them."""
