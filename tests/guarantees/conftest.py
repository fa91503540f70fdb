"""Whole jobs for the recorded runs, as the tests of failures have them."""

from tests.faults.conftest import start

__all__ = ["start"]
