"""Changes of a running job: upgrades, other parallelism and rollbacks without a stop (0040)."""
