"""Backtests of a recorded job: the unchanged code writes exactly the rows of the recorded epochs, whatever dies."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.written import records_in
from causal.errors import PipelineError
from causal.ids import OUTSIDE
from deploy.backtesting.backtest import backtest
from deploy.savepoints.recorded_checkpoint import positions_after
from operators.recordings.recording import Recording, open_recording
from standby.blueprint import Blueprint
from tests.faults.job import wait_for

JOB = """
import time

from operators import Operator, Pipeline, Tumbling
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("shop")
pause_s = float(pipeline.settings.get("pause", "0"))


def order(partition, number):
    customer = f"{partition}-{number % 20}"
    return {"order": number, "customer": customer, "cents": 100 + number * 37 % 900, "at": number / 50}


class Total(Operator):
    def process(self, record, ctx):
        time.sleep(pause_s)
        ctx.state["sum"] = ctx.state.get("sum", 0) + record["cents"]
        yield {**record, "total": ctx.state["sum"]}


orders = pipeline.source("orders", GeneratedSource(order, count=None, rate=2_000, partitions=2), parallelism=2)
totals = orders.key_by(lambda order: order["customer"]).process("total", Total(), parallelism=2)
totals.sink("out", SqliteSink(pipeline.settings["out"]))
timed = orders.watermarks("timed", lambda order: order["at"]).key_by(lambda order: order["customer"])
windows = timed.window("windows", Tumbling(4.0), lambda key, orders, window: [[key, window.start, len(orders)]])
windows.sink("counts", SqliteSink(pipeline.settings["out"] + ".windows"))
"""
CAUSAL = (sys.executable, "-m", "deploy")


def order(partition: int, number: int) -> dict[str, Any]:
    """Return the record of the job, which is written here once more."""
    customer = f"{partition}-{number % 20}"
    return {"order": number, "customer": customer, "cents": 100 + number * 37 % 900, "at": number / 50}


def causal(place: Path, *arguments: str, status: int = 0) -> str:
    """Run the command, and return what it prints."""
    done = subprocess.run([*CAUSAL, *arguments], cwd=place, capture_output=True, text=True, timeout=100)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def written(database: Path) -> int:
    """Return the number of rows; 0 while there is no table."""
    with suppress(sqlite3.OperationalError):
        return sum(1 for _ in records_in(database)) if database.exists() else 0
    return 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a recorded job of which tasks were killed, and which was stopped before its input ended."""
    place = tmp_path_factory.mktemp("shop")
    (place / "shop.py").write_text(JOB)
    options = ("--record", "120s,1GB", "--checkpoint-interval", "0.15", "--kill", "total/0@0.5", "--kill", "timed/1@1")
    command = [*CAUSAL, "run", "shop.py", "--set", "out=out.db", *options]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as job:

        def enough() -> bool:
            assert job.poll() is None, job.communicate()
            return written(place / "out.db") > 3_500

        wait_for("the job has written rows", enough)
        causal(place, "savepoint", "shop", "--stop")
        assert job.wait(100) == 0
    return place


@pytest.fixture(scope="module")
def recording(place: Path) -> Recording:
    return open_recording(place / ".causal" / "shop")


def recorded_rows(place: Path, recording: Recording, sink: str, first: int, last: int) -> list[Any]:
    """Return the rows of a sink's only task in these epochs, by the positions in the recorded cuts."""
    topology = Blueprint.load(place / ".causal" / "shop").topology
    (task,) = [task for task in topology.tasks if sink in task.operators]
    (channel,) = [channel for channel in topology.outputs(task.index) if channel.target == OUTSIDE]

    def position(epoch: int) -> int:
        reached = recording.log(task.name, epoch).reached if epoch >= 0 else None
        return 0 if reached is None else reached.outputs[channel.id][0]

    rows = list(records_in(place / ("out.db" if sink == "out" else "out.db.windows")))
    return rows[position(first - 1) : position(last)]


def totals(recording: Recording, first: int, last: int, from_empty: bool = False) -> list[Any]:
    """Return the rows of `total` in these epochs, computed from the positions alone."""
    starts = positions_after(recording, first - 1) if first else {}
    rows = []
    for (source, partition), (stop, _) in positions_after(recording, last).items():
        start, _ = starts.get((source, partition), (0, False))
        sums: Counter[str] = Counter()
        for number in range(start if from_empty else 0, stop):
            record = order(partition, number)
            sums[record["customer"]] += record["cents"]
            if number >= start:
                rows.append({**record, "total": sums[record["customer"]]})
    return rows


def same(rows: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Return whether both have the same rows, in any order."""
    return sorted(map(json.dumps, rows)) == sorted(map(json.dumps, expected))


def test_the_unchanged_code_writes_the_rows_of_these_epochs_although_tasks_die(
    place: Path, recording: Recording
) -> None:
    first, last = recording.checkpoints()[3], recording.epochs()[-1] - 3
    printed = causal(
        place, "run", "shop.py", "--input", "shop", "--from", str(first), "--to", str(last), "--state-dir", "killed",
        "--set", "out=killed.db", "--set", "pause=0.0005", "--set", "parallelism.total=3",
        "--checkpoint-interval", "0.1",
        "--kill", "timed/0@0.2", "--kill", "total/1@0.4", "--kill", "out/0@0.6",
    )  # fmt: skip
    assert (
        f"reads epochs {first} to {last} of shop" in printed
        and f"beginning with the state of checkpoint {first}" in printed
    )
    rows = list(records_in(place / "killed.db"))
    assert same(rows, totals(recording, first, last)) and same(
        rows, recorded_rows(place, recording, "out", first, last)
    )
    windows = list(records_in(place / "killed.db.windows"))
    assert windows and same(windows, recorded_rows(place, recording, "counts", first, last))


def test_a_backtest_that_was_killed_whole_is_resumed_and_continued(place: Path, recording: Recording) -> None:
    first, middle, last = recording.checkpoints()[2], 12, recording.epochs()[-1]
    options = ("--set", "out=resumed.db", "--set", "pause=0.001", "--checkpoint-interval", "0.1")
    command = ["run", "shop.py", "--input", "shop", "--from", str(first), "--to", str(middle), "--state-dir", "resumed"]
    chance = random.Random(4)
    with subprocess.Popen([*CAUSAL, *command, *options], cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          start_new_session=True) as job:  # fmt: skip
        wait_for("a row is there", lambda: written(place / "resumed.db") > 0)
        time.sleep(chance.random() * 0.3)
        os.kill(job.pid, signal.SIGKILL)
    causal(place, "run", "shop.py", "--resume", "--state-dir", "resumed")
    assert same(list(records_in(place / "resumed.db")), totals(recording, first, middle))
    printed = causal(place, "run", "shop.py", "--resume", "--state-dir", "resumed")  # nothing is left to read
    assert same(list(records_in(place / "resumed.db")), totals(recording, first, middle))
    kept = printed.strip().rpartition("--from ")[2]
    causal(place, "run", "shop.py", "--input", "shop", "--from", kept, "--state-dir", "next", "--set", "out=next.db")
    assert same(list(records_in(place / "next.db")), totals(recording, middle + 1, last))
    state = json.loads(causal(place, "state", "--state-dir", "next", "total", "1-3", "--json"))
    then = json.loads(causal(place, "state", "shop", "total", "1-3", "--at", str(last + 1), "--json"))
    assert [each["state"] for each in state["tasks"]] == [each["state"] for each in then["tasks"]]


def test_without_a_checkpoint_a_backtest_begins_with_empty_state(place: Path, recording: Recording) -> None:
    last = recording.epochs()[-1]
    causal(place, "run", "shop.py", "--input", "shop", "--state-dir", "all", "--set", "out=all.db")
    assert same(list(records_in(place / "all.db")), totals(recording, 0, last))
    before = (place / ".causal" / "shop" / "job.json").read_bytes()
    for options, line in (
        (("--state-dir", "x", "--set", "out=out.db"), "the recorded job writes its rows to"),
        ((), "is the directory of the recorded job; choose another with --state-dir"),
        (("--resume",), "--input starts a new job; --resume continues one"),
    ):
        printed = causal(place, "run", "shop.py", "--input", "shop", "--set", "out=x.db", *options, status=2)
        assert line in printed and printed.count("\n") - ("reads epochs" in printed) == 1, printed
    assert (place / ".causal" / "shop" / "job.json").read_bytes() == before and not (place / "x").exists()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"from_": "9999"}, "contains no epoch 9999; it has epochs 0 to"),
        ({"to": "9999"}, "contains no epoch 9999; it has epochs 0 to"),
        ({"from_": "8", "to": "3"}, "--to 3: epoch 3 is before epoch "),
        ({"from_": "noon"}, "--from noon: use a time such as"),
        ({"from_": "./none"}, "does not contain a savepoint"),
        ({"keep_sinks": True}, "--keep-sinks would add rows to those of the recorded job"),
        ({"input": "nothing"}, "does not contain a job"),
    ],
)
def test_what_is_not_recorded_is_one_line(place: Path, options: dict[str, Any], line: str) -> None:
    named = {"input": str(place / ".causal" / "shop"), "from_": None, "to": None, "resume": False, "keep_sinks": False}
    with pytest.raises(PipelineError, match=re.escape(line)) as refused, backtest(Namespace(**{**named, **options})):
        pass
    assert "\n" not in str(refused.value)
