"""A world in which a job is rescaled while it runs: see docs/design/0040-changes-without-a-stop.md."""
