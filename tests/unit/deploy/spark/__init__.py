"""Tests of what places agents in a Spark cluster."""
