"""Cells in real jobs: killed, started again as a whole, and regrouped at savepoints; no row shows any of it (0036)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import SUPERVISOR, kill
from benchmarks.harness.runs import sets
from tests.faults.conftest import HeldChain, Start
from tests.faults.job import PIPELINES, causal, causal_output, wait_for
from tests.faults.test_savepoints import changing, check, further, rows, stop
from tests.members import campaign

NARROW = ("--set", "parallelism=1")
KILLS = {
    "one": (NARROW, ["one/0"], ["score/0"]),
    "stages": ((), ["sources/0"], ["score/1"], ["rest/0", "totals/0"]),
}
"""Grouping → the arguments of the job, and the names that are killed together, one kill after the other."""


@pytest.mark.parametrize(
    ("processes", "guarantee"),
    [("one", "causal"), ("stages", "causal"), campaign("one", "epoch"), campaign("stages", "epoch")],
)
def test_a_killed_cell_recovers_exactly(processes: str, guarantee: str, start_chain: Callable[..., HeldChain]) -> None:
    arguments, *kills = KILLS[processes]
    chain = start_chain(
        "--processes", processes, "--guarantee", guarantee, *arguments, checkpoint_interval_s=0.3, crash_loop_max=100
    )
    job = chain.job
    shown = job.until_warm(records=200)
    assert ("one/0" if processes == "one" else "sources/0") in [task["task"] for task in shown["tasks"]]
    for names in kills:
        job.until_warm()
        job.replace(*[task_of(shown, name) for name in names])
    job.kill_everything()
    job.start("--resume")
    job.until_warm()
    chain.finish_exactly()


def test_a_small_job_keeps_five_processes_and_survives_kills(start_chain: Callable[..., HeldChain]) -> None:
    """The template and the fork server end; later standbys and servers are started as new interpreters."""
    chain = start_chain("--processes", "one", *NARROW, checkpoint_interval_s=0.3, crash_loop_max=100)
    job = chain.job
    job.until_warm(records=50)
    wait_for("five processes are left", lambda: len(job.living()) == 5)
    lines = " ".join(job.living().values())
    assert "standby.host" not in lines and lines.count("operators.runtime.worker") == 2
    assert "_zmq" not in Path(f"/proc/{job.root}/maps").read_text(), "`causal run` keeps little loaded"
    for _ in range(2):
        job.until_warm()
        job.replace("one/0")
    kill(job.server(SUPERVISOR))
    job.until_warm()
    job.replace("one/0")
    chain.finish_exactly()


def test_causal_run_keeps_what_the_code_of_the_user_left_in_it(tmp_path: Path) -> None:
    """Its exit handlers, for example, run once the job has ended; the interpreter of `causal run` is a new one."""
    (tmp_path / "kept.py").write_text(KEPT)
    status, said = causal(tmp_path, "run", "kept.py")
    assert status == 0 and "rows.db" in (tmp_path / "left").read_text(), said


@pytest.mark.parametrize(
    ("left", "same"),
    [
        ("pass", False),
        ("lock = open('lock', 'w'); fcntl.flock(lock, fcntl.LOCK_EX)", True),
        ("server = socket.create_server(('127.0.0.1', 0))", True),
        ("signal.signal(signal.SIGUSR1, lambda number, frame: None)", True),
        ("faulthandler.register(signal.SIGUSR1)", True),
    ],
)
def test_causal_run_keeps_files_sockets_and_signal_handlers_of_the_user(left: str, same: bool, tmp_path: Path) -> None:
    (tmp_path / "holding.py").write_text(HOLDING.format(left=left))
    status, said = causal(tmp_path, "run", "holding.py")
    assert status == 0 and ("the same program" in said) is same, said


def test_a_small_job_ends_at_a_savepoint_when_sigterm_arrives(start_chain: Callable[..., HeldChain]) -> None:
    chain = start_chain("--processes", "one", "--savepoint-on-sigterm", *NARROW, checkpoint_interval_s=0.3)
    job = chain.job
    job.until_warm(records=50)
    os.kill(job.root, signal.SIGTERM)
    status, said = job.finish()
    assert status == 0 and "the job ends at a savepoint" in said, said
    job.start("--resume")
    job.until_warm()
    chain.finish_exactly()


def test_a_cell_is_performed_again_with_the_same_result(start_chain: Callable[..., HeldChain]) -> None:
    chain = start_chain("--processes", "one", "--verify-replay", *NARROW, checkpoint_interval_s=0.3)
    chain.job.until_warm(records=100, checkpoints=2)
    report = chain.finish_exactly()
    assert report["checked_epochs"]["one/0"] > 0


KEPT = """
import atexit, os, sys
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("kept", processes="one")
pipeline.source("numbers", GeneratedSource(lambda partition, index: index, count=9)).sink("out", SqliteSink("rows.db"))
if "run" in sys.argv:
    atexit.register(lambda: open("left", "w").write(str(os.listdir())))
"""


HOLDING = """
import atexit, faulthandler, fcntl, os, signal, socket, sys
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("holding", processes="one")
pipeline.source("numbers", GeneratedSource(lambda partition, index: index, count=9)).sink("out", SqliteSink("rows.db"))
if "run" in sys.argv:
    {left}
    from deploy.launching import following

    following._show = lambda *facts: print("the same program", file=sys.stderr)
"""


UNREADABLE = """
import time
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import FilesSource

def slow(record):
    time.sleep(0.002)
    return record

pipeline = Pipeline("unreadable", processes="one")
pipeline.source("lines", FilesSource("in.jsonl", format="json")).map("slow", slow).sink("out", SqliteSink("rows.db"))
"""


def test_an_epoch_with_unreadable_lines_is_checked(tmp_path: Path) -> None:
    (tmp_path / "unreadable.py").write_text(UNREADABLE)
    lines = [f'{{"n": {number}}}' if number % 7 else "not JSON" for number in range(1500)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    asked = ("--verify-replay", "--on-error", "dead-letter", "--checkpoint-interval", "0.3", "--report", "report.json")
    status, said = causal(tmp_path, "run", "unreadable.py", *asked)
    assert status == 0, said
    assert json.loads((tmp_path / "report.json").read_text())["checked_epochs"]["one/0"] > 0
    logs = "".join(path.read_text() for path in (tmp_path / ".causal" / "unreadable" / "logs").iterdir())
    assert "cannot be recorded" not in logs


def task_of(view: dict[str, Any], name: str) -> str:
    """Return the task that performs the subtask with this name, as `causal kill` accepts it."""
    names = [str(task["task"]) for task in view["tasks"]]
    if name in names:
        return name
    return next(str(task) for task in names if task.startswith(("one", "rest")))


@pytest.mark.parametrize(
    "order", [("per-task", "one", "stages", "per-task"), campaign(("one", "per-task", "one", "stages", "one"))]
)
def test_the_grouping_changes_at_savepoints_with_kills(order: tuple[str, ...], start: Start, tmp_path: Path) -> None:
    first, *later = order
    narrow: dict[str, Any] = {"parallelism": 1, "sources": 1}
    job = changing(start, tmp_path, "--checkpoint-interval", "0.5", "--processes", first, **narrow)
    job.until_warm(records=100)
    stop(job)
    for processes in later:
        before = len(rows(tmp_path))
        job.start("--resume", "--processes", processes)
        view = job.until_warm(records=before + 100, checkpoints=1)
        job.replace(view["tasks"][-1]["task"])
        stop(job)
    done = further(tmp_path)
    job.start("--resume", *sets(**narrow, count=done, rate=100_000))
    job.finish_well()
    check(rows(tmp_path), done)


def test_the_grouping_changes_together_with_the_parallelism(start: Start, tmp_path: Path) -> None:
    job = changing(start, tmp_path, "--checkpoint-interval", "0.5", "--processes", "one", parallelism=1, sources=1)
    job.until_warm(records=100)
    stop(job)
    before = len(rows(tmp_path))
    job.start("--resume", "--processes", "stages", *sets(parallelism=2, sources=2))
    view = job.until_warm(records=before + 100, checkpoints=1)
    assert [task["task"] for task in view["tasks"]] == ["same/0", "same/1", "rest/0", "rest/1"]
    job.replace("rest/1")
    stop(job)
    done = further(tmp_path)
    job.start("--resume", "--processes", "one", *sets(parallelism=1, sources=1, count=done, rate=100_000))
    job.finish_well()
    check(rows(tmp_path), done)


def test_a_job_that_did_not_stop_at_a_savepoint_keeps_its_grouping(start: Start, tmp_path: Path) -> None:
    job = changing(start, tmp_path, "--checkpoint-interval", "0.5", "--processes", "one", parallelism=1, sources=1)
    job.until_warm(records=50)
    job.kill_everything()
    again = (str(PIPELINES / "changing.py"), *sets(out=tmp_path / "rows.db", parallelism=1, sources=1))
    status, said = causal(tmp_path, "run", *again, "--resume", "--processes", "stages", "--state-dir", str(job.state))
    assert status == 2 and "--processes and --standbys included" in said and len(said.splitlines()) == 1


def test_commands_accept_the_names_of_subtasks(start: Start, tmp_path: Path) -> None:
    job = changing(start, tmp_path, "--checkpoint-interval", "0.5", "--processes", "one", parallelism=1, sources=1)
    job.until_warm(records=100)
    at = ("--state-dir", str(job.state))
    status, said = causal(tmp_path, "kill", "tally/0", *at)
    assert status == 0, said
    assert "one/0" in causal_output(tmp_path, "logs", "tally/0", *at)
    assert "performs same/0, tally/0, out/0" in causal_output(tmp_path, "status", *at)
    shown = json.loads(causal_output(tmp_path, "status", "--json", *at))
    assert shown["cells"] == {"one/0": ["same/0", "tally/0", "out/0"]}
    for live in ((), ("--live",)):
        kept = json.loads(causal_output(tmp_path, "state", "tally", "3", "--json", *live, *at))
        assert [task["task"] for task in kept["tasks"]] == ["one/0"]
        assert kept["tasks"][0]["state"]["state"]["n"] > 0, kept
    assert "3" in json.loads(causal_output(tmp_path, "state", "tally", "--json", *at))["keys"]
    job.until_warm(records=200)
    stop(job)
