"""This project: `causal run` with exactly-once output, full sharing depth, a standby per task, checkpoints every 1 s.

`options` of the request are further arguments, such as another guarantee.

*failover*: the process of `count/0` gets SIGKILL; rows are seen by a reader that polls the sink's SQLite file.
*kafka*: the job is ended once all rows are committed.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.programs import inputs
from causal.config import JobConfig
from operators.records.keys import key_group, task_of_group

PIPELINE = Path(__file__).with_name("our_pipelines.py")
VICTIM = "count/0"
DOCUMENTS_PER_BATCH = 8
POLL_S = 0.002


def start(workload: str, place: Path, asked: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    """Start the job; its directory is `place/job`."""
    command = [sys.executable, "-m", "deploy", "run", str(PIPELINE), f"--set=workload={workload}"]
    command += [f"--set=place={place}", f"--state-dir={place / 'job'}", f"--checkpoint-interval={asked['interval_s']}"]
    command += asked.get("options", [])
    if workload == "index":
        (place / "job.toml").write_text(f"batch_elements_max = {DOCUMENTS_PER_BATCH}\n")
        command.append(f"--config={place / 'job.toml'}")
    return subprocess.Popen([*command, f"--report={place / 'report.json'}"])


def view(place: Path) -> dict[str, Any]:
    """Return what the supervisor last said of the job; nothing before it has said anything."""
    try:
        status: dict[str, Any] = json.loads((place / "job" / "status.json").read_text())
    except FileNotFoundError:
        return {}
    return status


def times_s(place: Path) -> dict[str, float]:
    """Return when the first record entered and the last output was written, on the wall's clock."""
    status = view(place)
    ahead_s = time.time() - time.monotonic()
    return {"first_s": status["first_record_ns"] / 1e9 + ahead_s, "last_s": status["last_output_ns"] / 1e9 + ahead_s}


class Reader:
    """A client of the sink's file: sees the rows that are committed, as they come."""

    def __init__(self, place: Path) -> None:
        self._path = place / "out.db"
        self._seen = inputs.Seen(place)
        self._database: sqlite3.Connection | None = None
        self._next = 0

    def poll(self) -> None:
        """Record the rows that are new."""
        if self._database is None:
            if not self._path.exists():
                return
            self._database = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)
        try:
            records = self._database.execute(
                "SELECT record FROM output WHERE task = 'out/0' AND position >= ? ORDER BY position", (self._next,)
            ).fetchall()
        except sqlite3.OperationalError as problem:
            if "no such table" in str(problem) or "locked" in str(problem):
                return  # the sink has only begun to make the file
            raise
        if records:
            self._next += len(records)
            self._seen.add([tuple(json.loads(record)) for (record,) in records])


def killed_keys() -> list[int]:
    """Return the keys that the task which is killed counts."""
    groups = JobConfig("peers", "peers", "peers").key_groups
    owners = {key: task_of_group(key_group(key, groups), inputs.PARTITIONS, groups) for key in range(inputs.KEYS)}
    return [key for key, owner in owners.items() if owner == int(VICTIM.rpartition("/")[2])]


def failover(job: subprocess.Popen[bytes], place: Path, kill_after_s: float) -> dict[str, Any]:
    """Kill the task some seconds after the first row can be seen; read until the job has ended."""
    reader, first_s, killed_s = Reader(place), None, None
    while job.poll() is None:
        reader.poll()
        if first_s is None and any(place.glob("seen-*.log")) and max(p.stat().st_size for p in place.glob("seen-*")):
            first_s = time.time()
        if killed_s is None and first_s is not None and time.time() > first_s + kill_after_s:
            pid = next(task["pid"] for task in view(place)["tasks"] if task["task"] == VICTIM)
            killed_s = time.time()
            os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)
    reader.poll()
    return {"killed_s": killed_s, "killed": f"the process of {VICTIM}", "killed_keys": killed_keys()}


def _until_committed(job: subprocess.Popen[bytes], place: Path, asked: Mapping[str, Any]) -> int:
    from benchmarks.peers.programs import kafka_topics

    try:
        last_s = kafka_topics.last_row_s(asked)
    finally:
        job.terminate()
        job.wait()
    inputs.put(place / "outcome.json", {**times_s(place), "last_s": last_s})
    return 0


def main() -> int:
    """Run one workload."""
    workload, place = sys.argv[1], Path(sys.argv[2])
    asked = inputs.asked(place)
    job = start(workload, place, asked)
    outcome: dict[str, Any] = {"guarantee": "exactly once, visible immediately; a standby per task", "per_record": True}
    if workload == "failover":
        outcome |= failover(job, place, asked["kill_after_s"])
    if workload == "kafka":
        return _until_committed(job, place, asked)
    if job.wait():
        return 1  # its last line says why
    report = json.loads((place / "report.json").read_text())
    outcome |= times_s(place) | {"checkpoints": report["checkpoints"], "recoveries": report["recoveries"]}
    inputs.put(place / "outcome.json", outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
