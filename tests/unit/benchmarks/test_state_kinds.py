"""The benchmark of state measures the same work in both forms, and an append as an append."""

from __future__ import annotations

from benchmarks.throughput import state_kinds


def test_disk_and_memory_do_the_same_work() -> None:
    runs = [state_kinds._run(state, 3000, 4000) for state in state_kinds.STATES]
    assert runs[0]["sum"] == runs[1]["sum"] > 0


def test_an_append_is_measured_as_what_a_checkpoint_writes() -> None:
    short, long = state_kinds._append_bytes("list", 100), state_kinds._append_bytes("list", 10_000)
    assert 0 < short <= long < short + 8
    assert state_kinds._append_bytes("dict", 10_000) > 10_000
