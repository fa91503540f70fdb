"""The agent's table of processes keeps what belongs to the living, and a bounded number of logs of the dead."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from causal.errors import Unavailable
from causal.process import processlog
from standby.host import children
from standby.host.children import Child, Children


def test_logs_of_processes_that_ended_are_kept_up_to_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "LOGS_KEPT", 3)
    logs = tmp_path / "logs"
    logs.mkdir()
    for age in range(10):
        path = logs / f"w{age}.log"
        path.write_text("said\n")
        os.utime(path, ns=(age, age))
    for name in ("supervisor.log", "agent.log", "companion-spark.log"):
        (logs / name).write_text("said\n")
    table = Children(tmp_path)
    table.living["w1"] = Child("w1", "worker", ("x",), {})
    fresh = Child("w10", "worker", (sys.executable, "-c", ""), {})
    table.start(fresh)
    try:
        left = sorted(path.name for path in logs.iterdir())
        assert left == [
            "agent.log", "companion-spark.log", "supervisor.log", "w1.log", "w10.log", "w7.log", "w8.log", "w9.log",
        ]  # fmt: skip
    finally:
        assert fresh.process is not None
        fresh.process.wait()
        os.close(fresh.pidfd)


def test_the_socket_of_a_process_goes_with_it(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    runtime = tmp_path / "sockets"
    runtime.mkdir()
    (tmp_path / "runtime").write_text(f"{runtime}\n")
    for name in ("w1", "w2", "supervisor"):
        (runtime / name).touch()
    table = Children(tmp_path)
    child = Child("w1", "worker", (sys.executable, "-c", ""), {})
    table.start(child)
    while table.reap(child) is None:
        time.sleep(0.01)
    assert sorted(path.name for path in runtime.iterdir()) == ["supervisor", "w2"]


def test_a_process_that_cannot_be_started_names_what_is_missing(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    table, log = Children(job), job / "logs" / "w1.log"
    log.mkdir(parents=True)
    with pytest.raises(Unavailable, match=f"w1 cannot be started: {log}: Is a directory"):
        table.start(Child("w1", "worker", (sys.executable, "-c", ""), {}))


def test_logs_that_were_removed_keep_no_process_from_starting(tmp_path: Path) -> None:
    table = Children(tmp_path)
    child = Child("w1", "worker", (sys.executable, "-c", "print('said')"), {})
    table.start(child)
    while table.reap(child) is None:
        time.sleep(0.01)
    assert (tmp_path / "logs" / "w1.log").read_text() == "said\n"


def test_the_log_of_a_process_that_writes_directly_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processlog, "LOG_BYTES_MAX", 1000)
    table, log = Children(tmp_path), tmp_path / "logs" / "w1.log"
    log.parent.mkdir()
    table.living["w1"] = Child("w1", "worker", ("x",), {})
    table.bound_logs()
    with open(log, "ab", buffering=0) as written:
        written.write(b"a" * 3000 + b"b" * 1000)
        table.bound_logs()
        written.write(b"c")
    assert log.read_bytes() == b"c" and (log.parent / "w1.log.1").read_bytes() == b"b" * 1000
