"""Errors, output and logs of user code can be found: file and line, the whole traceback, one place for all logs."""

from __future__ import annotations

import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, causal_output, command, environment
from tests.members import campaign

RAISING = PIPELINES / "raising.py"
LINE = next(n for n, text in enumerate(RAISING.read_text().splitlines(), 1) if "the line that errors" in text)
WHERE = f"{RAISING}:{LINE} in look_up"


def logs(job: Path, *arguments: str) -> list[str]:
    return causal_output(job.parent, "logs", "--state-dir", str(job), *arguments).splitlines()


def test_an_exception_names_its_line_and_log_and_dead_letters_have_the_traceback(start: Start) -> None:
    job = start(RAISING, "--set", "raises=500")
    status, line = job.finish()
    assert status == 1 and len(line.splitlines()) == 1
    assert f"KeyError: 'deep' at {WHERE}; record {{'i': 499}}" in line
    shown = "\n".join(logs(job.state, "count/0"))
    assert "ERROR causal.worker: Traceback (most recent call last):" in shown
    assert f'File "{RAISING}", line {LINE}, in look_up' in shown and "KeyError: 'deep'" in shown
    assert "operators/" not in shown  # no frame of the runtime's own
    job.start("--resume", "--on-error", "dead-letter").finish_well()
    letters = job.letters()
    assert sorted(letter["record"]["i"] for letter in letters) == [499, 999, 1499, 1999]
    assert {letter["where"] for letter in letters} == {WHERE}
    assert all("in checked" in letter["traceback"] and "in look_up" in letter["traceback"] for letter in letters)


def test_what_is_printed_and_logged_is_in_one_place_whatever_process_ran_the_task(start: Start) -> None:
    job = start(RAISING, "--kill", "count/0@0.5")
    job.until("it has come up", lambda view: True)
    follower = subprocess.Popen(
        command("logs", "--state-dir", job.state.name, "-f", "count/0"), cwd=job.directory,
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        job.finish_well()
        followed = follower.communicate(timeout=60)
    finally:
        follower.kill()
    shown = logs(job.state, "count/0")
    assert sorted(followed[0].splitlines()) == sorted(shown) and not followed[1]
    assert shown == sorted(shown, key=lambda line: line[:24])
    for key in (0, 1):
        for n in range(100, 1001, 100):
            text = f"{key} {n}"
            assert any(line.endswith(f"print: printed {text}") for line in shown)
            assert any(line.endswith(f"INFO mine: logged {text}") for line in shown)
            # Twice where the process was killed before any other task depended on what it had done.
            assert sum(line.endswith(f"INFO operators.count: by ctx {text}") for line in shown) in (1, 2)
    assert not any("(replay) INFO operators.count" in line for line in shown)
    assert any(" supervisor " in line and "takes over" in line for line in logs(job.state))
    assert len(logs(job.state, "-n", "3")) == 3
    with sqlite3.connect(job.directory / "out.db") as database:
        assert database.execute("SELECT count(*) FROM output").fetchone() == (2000,)


EXITING = """
from operators import Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource


def leave(record):
    exit(3)


pipeline = Pipeline("exiting")
pipeline.source("in", GeneratedSource(lambda p, i: i, count=9)).map("m", leave).sink("out", JsonLinesSink("out"))
"""


ENDINGS = [("exit(3)", "called exit()"), campaign("raise KeyboardInterrupt", "raised KeyboardInterrupt")]


@pytest.mark.parametrize("ending, did", ENDINGS)
def test_what_is_no_exception_of_a_record_ends_the_job_with_its_line(
    start: Start, tmp_path: Path, ending: str, did: str
) -> None:
    (tmp_path / "exiting.py").write_text(EXITING.replace("exit(3)", ending))
    status, line = start(tmp_path / "exiting.py").finish()
    assert status == 1 and len(line.splitlines()) == 1
    assert "m/0" in line and f"user code {did} at {tmp_path}/exiting.py:8 in leave" in line


CRASHING = [
    ("ctypes.string_at(0)", "its process was killed by signal 11 (SIGSEGV): Fatal Python error: Segmentation fault"),
    campaign("os._exit(3)", "its process exited with status 3"),
]


@pytest.mark.parametrize("ending, did", CRASHING)
def test_a_process_that_dies_in_user_code_names_its_end_and_its_log(
    start: Start, tmp_path: Path, ending: str, did: str
) -> None:
    (tmp_path / "crashing.py").write_text("import ctypes, os\n" + EXITING.replace("exit(3)", ending))
    job = start(tmp_path / "crashing.py")
    status, line = job.finish()
    assert status == 1 and len(line.splitlines()) == 1
    assert "m/0 failed 5 times in a row" in line and "see `causal logs m/0` (logs/w" in line and line.endswith(did)
    shown = "\n".join(logs(job.state, "m/0"))
    if "string_at" in ending:
        assert f'File "{tmp_path}/crashing.py", line 9 in leave' in shown
        assert "killed by signal 11 (SIGSEGV)" in (job.state / "logs" / "agent.log").read_text()


OUTSIDE = """
from operators import Pipeline
from operators.sinks import JsonLinesSink, SqliteSink
from operators.sources import GeneratedSource, Read, Source


class Tickets(Source):
    partitions = 1

    def open(self, partition, context):
        return Reader()


class Reader:
    def read(self, position, count_max):
        return Read([int("x")], 0)

    def ready_in_s(self, position):
        return 0.0

    def completed(self, position): ...

    def close(self): ...


class Unwritten(SqliteSink):
    def open_store(self, task, job_directory):
        store = super().open_store(task, job_directory)
        store.write = self.write
        return store

    def write(self, bundle):
        raise LookupError("no\\nsuch table")


class Unopened(SqliteSink):
    def open_store(self, task, job_directory):
        raise LookupError("no\\nsuch database")


pipeline = Pipeline("outside")
numbers = GeneratedSource(lambda p, i: i, count=9)
pipeline.source("in", SOURCE).sink("out", SINK)
"""


@pytest.mark.parametrize(
    ("source", "sink", "said"),
    [
        (
            "Tickets()",
            'JsonLinesSink("out")',
            "ValueError: invalid literal for int() with base 10: 'x' at FILE:16 in read",
        ),
        ("numbers", 'Unwritten("out.db")', "LookupError: no such table at FILE:33 in write"),
    ],
    ids=["reader", "store"],
)
def test_an_exception_of_a_source_or_sink_of_ones_own_names_its_line(
    start: Start, tmp_path: Path, source: str, sink: str, said: str
) -> None:
    file = tmp_path / "outside.py"
    file.write_text(OUTSIDE.replace("SOURCE", source).replace("SINK", sink))
    job = start(file)
    status, line = job.finish()
    assert status == 1 and len(line.splitlines()) == 1
    assert line.endswith(f"; it ended with: {said.replace('FILE', str(file))}")
    assert "ERROR causal.worker: Traceback (most recent call last):" in "\n".join(logs(job.state))


def test_a_sink_of_ones_own_that_raises_before_the_job_starts_is_one_line(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "outside.py"
    file.write_text(OUTSIDE.replace("SOURCE", "numbers").replace("SINK", 'Unopened("out.db")'))
    status, line = start(file).finish()
    assert (status, line) == (2, f"causal: {file}:38 in open_store: LookupError: no such database")


SHRINKING = """from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("shrinking")
count = int(pipeline.settings.get("count", "100000"))
numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: i, count, rate=1000))
numbers.key_by(lambda n: n % 5).count("counts").sink("out", SqliteSink(pipeline.settings["out"]))
"""


def test_a_source_that_lacks_what_it_gave_before_ends_the_job_with_a_line(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "shrinking.py"
    file.write_text(SHRINKING)
    job = start(file, "--checkpoint-interval", "600", "--set", f"out={tmp_path / 'out.db'}")
    job.until_warm(records=50, checkpoints=0)
    job.kill_everything()
    job.start("--resume", "--code", "new", "--set", "count=10")
    status, line = job.finish()
    assert status == 1 and len(line.splitlines()) == 1
    assert (
        "numbers/0 stops: its source no longer returns elements that it returned before; restore its input or its count"
        in line
    )
    assert "elements before and returns " in line
