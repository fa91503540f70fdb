"""Tests of what the examples compute."""
