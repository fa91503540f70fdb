"""`isolation` and `latency_back` find the gaps and latencies that stamps and rows have, and no more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.harness.runs import RunFailed
from benchmarks.jobs import stamped_ledger, stamped_sink
from benchmarks.jobs.stamped_sink import Stamp
from benchmarks.recovery import isolation, latency_back, row_latency
from causal.ports import Bundle

SECOND_NS = 1_000_000_000


def steady(seconds: float, gaps: dict[int, int], seed: int) -> list[Stamp]:
    """A bundle about every 5 ms; `gaps`: from when on, how long nothing comes."""
    chance = random.Random(seed)
    stamps: list[Stamp] = []
    at_ns = SECOND_NS
    while at_ns < seconds * SECOND_NS:
        stamps.append(Stamp(at_ns, len(stamps), 1))
        at_ns += 5_000_000 + chance.randrange(1_000_000)
        at_ns += next((length for start, length in gaps.items() if start <= at_ns < start + length), 0)
    return stamps


def test_a_gap_behind_each_kill_is_told_from_noise_and_noise_is_not() -> None:
    moments = [(3 + 5 * number) * SECOND_NS for number in range(12)]
    hurt = isolation.compared(steady(70, dict.fromkeys(moments, 40_000_000), 1), moments)
    calm = isolation.compared(steady(70, {}, 2), moments)
    assert hurt["second1_ratio"]["low"] > 5 and hurt["second1_ratio"]["chance"] < 0.01
    assert hurt["second2_ratio"]["low"] < 1 < hurt["second2_ratio"]["high"]
    for second in (1, 2, 3):
        assert calm[f"second{second}_ratio"]["low"] <= 1 <= calm[f"second{second}_ratio"]["high"] < 1.2
        assert calm[f"second{second}_ratio"]["chance"] > 0.05 / 3


def series(slow_from_ns: int, slow_for_ns: int) -> row_latency.Latencies:
    """An element each millisecond for 20 s that takes 2 ms, and as long as it takes until the slow stretch is over."""
    origins = list(range(0, 20 * SECOND_NS, 1_000_000))
    end_ns = slow_from_ns + slow_for_ns
    return row_latency.Latencies(
        origins, [max(2_000_000, end_ns - at) if at >= slow_from_ns else 2_000_000 for at in origins]
    )


def test_latency_is_back_with_the_first_window_of_which_half_is_as_fast_as_before() -> None:
    moment_ns = 5 * SECOND_NS
    latency = series(moment_ns, 400_000_000)
    before_ns = latency.median_ns(moment_ns - SECOND_NS, moment_ns)
    assert before_ns == 2_000_000
    assert latency.back_ms(moment_ns, before_ns, 8 * SECOND_NS) == 450
    assert latency.back_ms(moment_ns, before_ns, moment_ns + 400_000_000) is None
    assert latency.back_ms(2 * SECOND_NS, before_ns, 3 * SECOND_NS) == 100


def test_each_kill_is_compared_with_a_moment_at_rest_and_with_what_was_replayed() -> None:
    moment_ns = 5 * SECOND_NS
    recoveries = [{"replayed_elements": 500}]
    figures, never = latency_back.compared(
        series(moment_ns, 400_000_000), [moment_ns], recoveries, 3 * SECOND_NS, 1000.0
    )  # fmt: skip
    assert never == 0
    assert figures["back_ms"]["runs"] == [450] and figures["control_ms"]["runs"] == [100]
    assert figures["over_replayed"]["runs"] == [0.9]
    with pytest.raises(RunFailed, match="never came back"):
        latency_back.compared(
            series(moment_ns, 9 * SECOND_NS), [moment_ns], recoveries, 3 * SECOND_NS, 1000.0
        )  # fmt: skip


def test_latencies_are_those_of_the_killed_task_alone() -> None:
    rows = [(0, 7, 1, 0, 0), (1, 8, 1, 1, 0), (0, 7, 2, 0, 1)]
    latency = row_latency.latencies(rows, [Stamp(1_000_900, 0, 2), Stamp(1_001_900, 2, 1)], 0, 1_000_000, 1000.0)
    assert list(latency.origins_ns) == [1_000_000, 1_001_000] and list(latency.took_ns) == [900, 900]


def test_rows_that_are_wrong_are_counted() -> None:
    rows = [(0, *stamped_ledger.make(p, i)[:1], 1, p, i) for p in range(2) for i in range(3)]
    assert stamped_ledger.wrong(rows, 3) == {"lost": 0, "doubled": 0, "contradicted": 0}
    assert stamped_ledger.wrong(rows[1:], 3)["lost"] == 1
    assert stamped_ledger.wrong([*rows, rows[0]], 3)["doubled"] == 1
    assert stamped_ledger.wrong([(0, 1, 2, 0, 0), *rows[1:]], 3)["contradicted"] == 1


def test_a_stamp_is_set_once_rows_are_visible_and_repeated_rows_count_once(tmp_path: Path) -> None:
    sink = stamped_sink.StampedSink(tmp_path / "out.db")
    store = sink.open_store("out/0", tmp_path)
    store.open("out/0", "run", 0)
    rows = sink.encode([1, 2])
    store.write(Bundle(0, 2, rows, _digest(rows), 0, 0, ()))
    store.close()
    path = stamped_sink.stamps_path(sink.path)
    assert [(s.first, s.count) for s in stamped_sink.read_stamps(sink.path)] == [(0, 2)]
    path.write_bytes(path.read_bytes() * 2)
    assert [(s.first, s.count) for s in stamped_sink.read_stamps(sink.path)] == [(0, 2)]


def _digest(rows: bytes) -> int:
    from causal.channels.rolling import RollingDigest

    return RollingDigest(0).feed(rows)
