"""Identities of runs are in the order of their starts."""

from __future__ import annotations

import random

from causal.runs import after, run_id, start_of
from operators.sinks.contract.account import shown


def test_the_order_of_identities_is_the_order_of_starts() -> None:
    chance = random.Random(1)
    starts = sorted({chance.getrandbits(63) for _ in range(500)})
    runs = [run_id(start, f"{chance.getrandbits(32):08x}") for start in starts]
    assert runs == sorted(runs) and [start_of(run) for run in runs] == starts


def test_identities_of_earlier_versions_are_lower() -> None:
    chance = random.Random(2)
    assert all(f"{chance.getrandbits(64):016x}" < run_id(0, "0") for _ in range(500))
    assert start_of("deadbeefdeadbeef") == 0


def test_a_run_begins_after_the_newest_that_is_known() -> None:
    slow = run_id(100, "a")
    assert after(slow, None) == slow
    assert after(slow, run_id(99, "f")) == slow
    assert after(slow, "0123456789abcdef") == slow
    for newest in (run_id(100, "f"), run_id(5000, "b")):
        run = after(slow, newest)
        assert run > newest and run.endswith("-a")


def test_messages_say_when_a_run_was_started() -> None:
    assert shown(run_id(1_700_000_000 * 10**9, "ab")).endswith("-ab (started 2023-11-14 22:13:20 UTC)")
    assert shown("cafe") == "cafe"
