"""Tests of operators: snapshots that are taken step by step."""

from __future__ import annotations

import pytest

from operators.state import keyed_tables


@pytest.fixture(autouse=True)
def few_keys_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves keys for later steps when one is about to change: the states of these tests have fewer than a batch."""
    monkeypatch.setattr(keyed_tables, "CLAIMED_MIN", 2)
    monkeypatch.setattr(keyed_tables, "CLAIMED_NUMERIC_MIN", 2)
