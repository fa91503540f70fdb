"""A recorder's cost is a ratio of jobs in turn, a replay's speed one of the same epochs, and an hour is computed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.harness.declared import Measurement
from benchmarks.harness.runs import RunFailed
from benchmarks.replay import commands, recorder_costs
from benchmarks.replay.performed import ALL
from benchmarks.replay.recorded_jobs import ORDERS, recorded, recorded_records, replayed
from operators.recordings.recording import open_recording

RATE, COUNT = 2_000, 3_000


def measurement(**options: Any) -> Measurement:
    return Measurement(argparse.Namespace(limit=60.0, rounds=2, **options), "", lambda line: None)


def test_a_recording_is_performed_again_and_counted() -> None:
    with recorded(ORDERS, {"count": COUNT, "rate": RATE, "keys": 50}, 60.0) as job:
        recording = open_recording(job.job)
        covered = recorded_records(recording, "orders")
        figures = replayed(job.job, ALL, "total/0", 60.0)
        assert 0 < covered <= COUNT and covered <= figures["records"] <= covered + 2
        assert figures["channels"] > 0 and figures["keys"] == 0
        one = replayed(job.job, recording.epochs()[0], "total/0", 60.0)
        assert one["records"] < figures["records"] or len(recording.epochs()) == 1
        with pytest.raises(RunFailed, match="has no epoch 99|contains no epoch 99"):
            commands.took_s("replay", job.job, ("--epoch", 99), 60.0)
        with pytest.raises(RunFailed, match="ended with 0, not 3"):
            commands.took_s("recordings", job.job, (), 60.0, status=3)


def test_runs_alternate_and_are_divided_by_those_without_a_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Pool:
        """Runs everything in this process."""

        def __init__(self, size: int) -> None:
            self.size = size

        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def submit(self, run: Any, *arguments: Any) -> Any:
            return SimpleNamespace(result=lambda: run(*arguments))

    def run_one(options: argparse.Namespace, name: str, mode: str) -> dict[str, Any]:
        order.append(mode)
        on = mode == "on"
        checked = {"took_ms": [3.0, 6.0, 9.0] if on else [4.0], "bytes": 500, "recorded": 100}
        return {"throughput_rps": 90.0 if on else 100.0, "cpu_s": 1.1 if on else 1.0, "checked": checked}

    monkeypatch.setattr(recorder_costs, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(recorder_costs, "_run", run_one)
    run = measurement(records=1_000, workload=["orders"])
    recorder_costs.measure(run)
    assert order == ["off", "on", "off", "on", "on", "off", "on", "off"]
    runs = run.all_runs()
    assert runs["recorder.orders.rps_over_off"] == [0.9, 0.9]
    assert runs["recorder.orders.cpu_over_off"] == pytest.approx([1.1, 1.1])
    assert runs["recorder.orders.checkpoint_over_off"] == [1.5, 1.5]
    assert runs["recorder.orders.bytes_per_record"] == [5.0, 5.0]


def test_an_hour_is_what_a_second_more_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = SimpleNamespace(epochs=lambda: range(1, 37), time_ns=lambda epoch: epoch * 10**9)

    def took_s(command: str, job: Path, words: Any, limit_s: float, status: int) -> float:
        assert command == "diff" and status == (3 if "--set" in words else 0)
        return 1.0 if words[-1] == "1..1" else 2.0

    monkeypatch.setattr(commands, "open_recording", lambda job: recording)
    monkeypatch.setattr(commands, "took_s", took_s)
    run = measurement(recorded=Path(sys.prefix))
    commands.diff(run)
    assert run.all_runs()["diff.same.hour_s"] == run.all_runs()["diff.changed.hour_s"] == [101.0, 101.0]
