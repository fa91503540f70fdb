"""Settings of the exhaustive tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Runs without the garbage collector: nothing is cyclic, and looking through all states costs half the time."""
    gc.disable()
    yield
    gc.enable()
