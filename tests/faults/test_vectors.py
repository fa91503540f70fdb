"""Vectors in a real job: tasks that count, add up, hold windows and read die; every row is there once and right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness.written import lines_in

pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no vectors")
pytest.importorskip("numpy", reason="NumPy is not installed: there are no vectors")

from tests.faults.conftest import Start
from tests.faults.job import PIPELINES

COUNT, KEYS = 5_000, 23


def expected() -> Iterator[tuple[int, int]]:
    """(key, i) of every row that passes the filter."""
    return (((i * 7 + p) % KEYS, i) for p in range(2) for i in range(1, COUNT, 2))


def assert_exact(directory: Path) -> None:
    of_key = Counter(key for key, _ in expected())
    total: Counter[int] = Counter()
    for key, i in expected():
        total[key] += i
    counts = sorted((row["k"], row["count"]) for row in lines_in(directory / "counts"))
    assert counts == [(key, n) for key in sorted(of_key) for n in range(1, of_key[key] + 1)]
    last: dict[int, int] = {}
    steps: Counter[tuple[int, int]] = Counter()
    for row in lines_in(directory / "sums"):  # in the order in which they were made: each adds one i to its key
        steps[row["k"], row["sum"] - last.get(row["k"], 0)] += 1
        last[row["k"]] = row["sum"]
    assert last == dict(total) and steps == Counter(expected())
    in_windows: Counter[int] = Counter()
    rows_in_windows: Counter[int] = Counter()
    for row in lines_in(directory / "windows"):
        in_windows[row["k"]] += row["i_sum"]
        rows_in_windows[row["k"]] += row["i_count"]
    assert in_windows == total and rows_in_windows == of_key


def test_every_task_on_vectors_may_die(start: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    settings = ["--set", f"count={COUNT}", "--set", "rate=1000", "--set", f"gate={gate}"]
    job = start(PIPELINES / "columns.py", *settings, "--checkpoint-interval", "0.7")
    job.until_warm(records=500, checkpoints=1)
    groups = (("count/0",), ("sum/0", "window/0"), ("odd/1", "count/1"))
    for tasks in groups:
        job.replace(*tasks)
    gate.touch()
    report = job.finish_well()
    assert sorted(recovery["task"] for recovery in report["recoveries"]) == sorted(t for tasks in groups for t in tasks)
    assert_exact(tmp_path)


@pytest.mark.campaign
def test_every_epoch_is_the_same_a_second_time(start: Start, tmp_path: Path) -> None:
    """`--verify-replay` performs each epoch again from recorded elements, and compares all outputs and all state."""
    settings = ["--set", "count=1000", "--set", "rate=1000", "--verify-replay", "--checkpoint-interval", "0.5"]
    job = start(PIPELINES / "columns.py", *settings)
    report = job.finish_well()
    assert len(report["checked_epochs"]) == 9 and all(report["checked_epochs"].values())
