"""A recording ends where its job ended: the last rows, and exceptions of user code, are replayed without a barrier."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.harness.written import records_in
from operators.recordings.recording import EXCEPTION, open_recording

JOB = """
from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("ends")
FAILS = pipeline.settings.get("fails", "")
COUNT = int(pipeline.settings.get("count", 1_500))


class Sum(Operator):
    commutes = True  # so the order of most events is not logged when they are performed

    def process(self, record, ctx):
        ctx.state["sum"] = ctx.state.get("sum", 0) + record["n"]
        if record["n"] % 20 == 19:
            yield {"sum": ctx.state["sum"]}


class Last(Operator):
    def process(self, record, ctx):
        if FAILS == "timer" and record["n"] == 900:
            ctx.set_timer(ctx.now(), "soon")
        if FAILS == "record" and record["n"] == 1_003:
            raise KeyError("no such customer")
        yield {**record, "luck": ctx.random.random()}

    def on_timer(self, name, ctx):
        raise OverflowError(name)


def number(partition, n):
    return {"n": n, "of": partition}


numbers = [pipeline.source(name, GeneratedSource(number, count=COUNT, rate=1_200)) for name in ("left", "right")]
numbers = [each.watermarks(f"time{n}", lambda r: r["n"]) for n, each in enumerate(numbers)]
both = numbers[0].union(numbers[1]).key_by(lambda record: record["n"] % 7)
both.process("sum", Sum()).sink("sums", SqliteSink("sums.db"))
both.process("last", Last(), delivery="ordered").sink("out", SqliteSink("out.db"))
"""
CAUSAL = (sys.executable, "-m", "deploy")


def run(place: Path, *options: str) -> subprocess.Popen[str]:
    (place / "ends.py").write_text(JOB)
    arguments = ("--record", "1h,1GB", "--checkpoint-interval", "0.3", *options)
    return subprocess.Popen(
        [*CAUSAL, "run", "ends.py", *arguments], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ends(job: subprocess.Popen[str], status: int) -> None:
    shown, _ = job.communicate(timeout=60)
    assert job.returncode == status, shown


def replay(place: Path, *options: str) -> str:
    done = subprocess.run([*CAUSAL, "replay", "ends", *options], cwd=place, capture_output=True, text=True, timeout=100)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


def test_the_last_rows_of_a_job_that_has_finished_are_replayed(tmp_path: Path) -> None:
    job = run(tmp_path)
    ends(job, 0)
    recording = open_recording(tmp_path / ".causal" / "ends")
    tail = recording.tail()
    assert tail is not None and tail.epochs.start == recording.epochs().stop and not tail.failed()
    assert f"epochs 0 to {tail.epochs[-1]} of " in replay(tmp_path)
    rows = list(records_in(tmp_path / "sums.db"))
    for position in (len(rows) - 1, len(rows) - 9):
        assert f"  after   {{'state': {{'sum': {rows[position]['sum']}}}}}" in replay(
            tmp_path, "--row", f"sums/0:{position}"
        )
    unfinished = json.loads(
        subprocess.run([*CAUSAL, "recordings", "ends", "--json"], cwd=tmp_path, capture_output=True, check=True).stdout
    )["unfinished"]
    assert unfinished["first"] == tail.epochs.start and unfinished["to_ns"] == tail.ended_ns


@pytest.mark.parametrize("kind", ["record", "timer"])
def test_the_event_whose_user_code_raised_is_shown_before_it_is_performed(tmp_path: Path, kind: str) -> None:
    job = run(tmp_path, "--set", f"fails={kind}")
    ends(job, 1)
    failure = open_recording(tmp_path / ".causal" / "ends").failures()[-1]
    assert failure.task == "last/0" and failure.mode == EXCEPTION
    assert "last/0 raised, as recorded: operator 'last'" in replay(tmp_path)
    shown = replay(tmp_path, "--at-crash")
    if kind == "record":
        assert "  record  {'n': 1003, 'of': " in shown and "raises  OperatorFailed" in shown
        assert "KeyError: 'no such customer'" in shown and "  code    " in shown
    else:
        assert shown.startswith("last/0, epoch ") and "timer" in shown and "OverflowError: soon" in shown


def test_a_job_that_is_interrupted_is_replayed_to_its_end_and_resumed(tmp_path: Path) -> None:
    place = tmp_path / ".causal" / "ends"
    job = run(tmp_path, "--set", "count=4_000")
    while not list((place / "recording" / "index").glob("e*2.json")):
        assert job.poll() is None
        time.sleep(0.05)
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=60)
    recording = open_recording(place)
    tail = recording.tail()
    assert tail is not None and not recording.failures()
    assert f"epochs 0 to {tail.epochs[-1]} of " in replay(tmp_path)
    job = run(tmp_path, "--set", "count=4_000", "--resume")
    ends(job, 0)
    recording = open_recording(place)
    later = recording.tail()
    assert later is not None and later.epochs.start > tail.epochs[-1]  # those epochs have been finished meanwhile
    assert recording.stretches() == [range(later.epochs.start)]
    assert f"epochs 0 to {later.epochs[-1]} of " in replay(tmp_path)
