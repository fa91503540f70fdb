"""`NatsSink` keeps every promise of the kit."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from benchmarks.servers.nats import Nats
from operators.sinks import NatsSink, conformance
from operators.sinks.conformance import Subject, crashes, outages, steps, successions, zombies
from tests.members import except_for

NUMBERS = count()
AWAY = outages.waits_for_an_unavailable_store
NOT_SHARED = (AWAY, crashes.takes_a_half_written_bundle_for_nothing)
"""Ends the server; a batch covers a bundle."""
SHARED = tuple(check for check in conformance.CHECKS if check not in NOT_SHARED)
STEP_BY_STEP = (
    successions.dies_at_every_step_of_a_replacement,
    crashes.dies_at_every_step_of_a_write,
    zombies.fences_zombies_at_every_step_of_a_write,
)
PLACES, SPREAD = 6, 2
"""The steps at which a writer dies in every run; in a campaign it dies at as many as a check has."""


def fresh(server: Nats, **options: Any) -> Subject:
    """Return a new stream."""
    stream = f"rows-{next(NUMBERS)}"
    sink = NatsSink(server.address, stream, timeout_ms=3000, **options)

    def read(task: str) -> list[Any]:
        if "error" in server.api(f"STREAM.INFO.{stream}"):
            return []
        rows = [row for row in server.rows(stream) if row.headers.get("task") == task]
        positions = [int(row.headers["position"]) for row in rows]
        assert positions == sorted(set(positions)), "rows are in order, and none comes again"
        return [json.loads(row.value) for row in rows]

    return Subject(sink, read, poison=lambda: {"text": "x" * (1 << 20)})


def named(check: Callable[[Subject], None]) -> str:
    return check.__name__


@pytest.mark.parametrize("check", except_for(SHARED, *STEP_BY_STEP), ids=named)
def test_a_stream_conforms(check: Callable[[Subject], None], shared_nats: Nats) -> None:
    check(fresh(shared_nats))


@pytest.mark.parametrize("check", STEP_BY_STEP, ids=named)
def test_a_step_by_step_sample(
    check: Callable[[Subject], None], shared_nats: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "PLACES_MAX", PLACES)
    monkeypatch.setattr(steps, "SPREAD_MAX", SPREAD)
    check(fresh(shared_nats))


def test_a_server_that_is_killed_is_waited_for(own_nats: Nats) -> None:
    subject = fresh(own_nats)
    subject.away = own_nats.down
    AWAY(subject)
