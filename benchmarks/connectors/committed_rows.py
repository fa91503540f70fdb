"""Latency of committed rows of Kafka, and the time from SIGKILL of each task to the first new committed row.

The job is `kafka_rows.py`, whose rows have dice and times; it reads events of two partitions at a rate.  A row is
committed when the last stable offset is beyond it, so that `read_committed` readers get it; that is asked for about
every millisecond.  *latency_p50_ms*, *latency_p99_ms*: from the call that produces an event to the commit of its row,
in each second before the first kill.  *kill.TASK_ms*: from the kill to the end of the longest silence of rows that
begins until `LATE_S` after it; of a counting task only the rows of its keys count.  The tasks are killed in turn, each
when its standby is ready.  At the end all rows are verified.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from benchmarks.harness import children, runs
from benchmarks.harness.declared import Measurement
from benchmarks.harness.measured import distribution, percentile
from benchmarks.harness.processes import wait_for
from benchmarks.harness.runs import RunFailed
from benchmarks.harness.usage import looking
from benchmarks.harness.watched import Watched, ready, watched
from benchmarks.recovery.paced_kills import READY_WITHIN_S
from benchmarks.servers import kafka
from causal.config import JobConfig
from examples import kafka_demo
from operators.records.keys import key_group, task_of_group

PIPELINE = runs.JOBS / "kafka_rows.py"
ROWS = "counts"
COUNTERS = 2
TASKS = ("events/0", "count/0", "out/0")
WARM_S, CALM_S, STILL_S = 2.0, 10.0, 3.0
LATE_S = 0.25
"""The time after a kill in which rows that had left the killed task may still be committed."""
LOOK_S = 0.0005
END_WITHIN_S = 60.0


class Commits:
    """The moments at which the last stable offset of a partition moved; `look` is called repeatedly."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        quiet = {"group.id": "watching", "log_level": 0}
        self._reader = Consumer({"bootstrap.servers": servers, "isolation.level": "read_committed", **quiet})
        self._partition = TopicPartition(ROWS, 0)
        self.moments_ns: list[int] = []
        self.ends: list[int] = [0]
        """The offset after the last committed row; one more than there are moments, because the first is 0."""

    def look(self) -> None:
        """Ask for it once."""
        _, end = self._reader.get_watermark_offsets(self._partition, kafka.ASK_S)
        if end != self.ends[-1]:
            self.moments_ns.append(time.monotonic_ns())
            self.ends.append(end)

    def at_ns(self, offset: int) -> int:
        """Return when the row at an offset was committed."""
        return self.moments_ns[bisect_right(self.ends, offset) - 1]

    def still(self) -> bool:
        """Return whether nothing was committed for some seconds."""
        return time.monotonic_ns() > self.moments_ns[-1] + STILL_S * 1e9


def measure(run: Measurement) -> None:
    """Run one job: calm at first, then with kills."""
    with kafka.topics() as topics:
        topics.create("events", 2)
        topics.create(ROWS, 1)
        commits = Commits(topics.servers)
        with watched(PIPELINE, {"servers": topics.servers, "out": None}, ()) as job, looking(commits.look, LOOK_S):
            job.until("every standby was ready", ready, READY_WITHIN_S)
            with _fed(topics.servers, run.options.rate) as counts:
                wait_for("a row is committed", lambda: bool(commits.moments_ns))
                time.sleep(WARM_S)
                began_ns = time.monotonic_ns()
                time.sleep(CALM_S)
                ended_ns = time.monotonic_ns()
                kills = list(_killed(run, job))
            wait_for("all rows are committed", commits.still)
        rows = topics.rows(ROWS)
    written = [(row.headers["task"].decode(), int(row.headers["position"]), row.value or b"") for row in rows]
    faults = run.more["output"] = kafka_demo.compare(written, *counts)
    if any(count for name, count in faults.items() if name != "rows"):
        raise RunFailed(f"the rows are not exactly once: {faults}")
    parsed = [(commits.at_ns(row.offset), json.loads(row.value or b"{}")) for row in rows]
    for second_ns in range(began_ns, ended_ns - 10**9 + 1, 10**9):
        took_ms = [(at_ns - row["made_ns"]) / 1e6 for at_ns, row in parsed if 0 <= at_ns - second_ns < 10**9]
        run.add("latency_p50_ms", percentile(took_ms, 0.5))
        run.add("latency_p99_ms", percentile(took_ms, 0.99))
    for task in TASKS:
        own = [at_ns for at_ns, row in parsed if task != "count/0" or _counter(row["key"]) == 0]
        name = f"kill.{task.partition('/')[0]}_ms"
        run.figures[name] = distribution([back_ms(own, at_ns) for killed, at_ns in kills if killed == task])


def _killed(run: Measurement, job: Watched) -> Iterator[tuple[str, int]]:
    """Kill the tasks in turn; yield each, with the moment in monotonic time."""
    kills = run.options.kills * len(TASKS)
    for number in range(kills):
        task = TASKS[number % len(TASKS)]
        time.sleep(run.options.every)
        job.until("the standby was ready", lambda view: ready(view, task), READY_WITHIN_S)  # noqa: B023
        yield task, job.kill_process(task)
        run.report(f"kill {number + 1} of {kills}: {task}")
    time.sleep(run.options.every)


def _counter(key: str) -> int:
    groups = JobConfig("kafka", "kafka", "kafka").key_groups
    return task_of_group(key_group(key, groups), COUNTERS, groups)


def back_ms(moments_ns: Sequence[int], killed_ns: int) -> float:
    """Return the time from a kill to the end of the longest silence that begins until `LATE_S` after it.

    Raises:
        RunFailed: no row was committed after the kill.
    """
    silences = [
        (later - earlier, later)
        for earlier, later in pairwise(moments_ns)
        if later > killed_ns and earlier < killed_ns + LATE_S * 1e9
    ]
    if not silences:
        raise RunFailed("no row was committed after a kill")
    return (max(silences)[1] - killed_ns) / 1e6


@contextmanager
def _fed(servers: str, rate: float) -> Iterator[list[int]]:
    """Append events at a rate until the block is left; the list then has their number per partition."""
    counts: list[int] = []
    command = [sys.executable, "-m", "benchmarks.connectors.feeding", servers, str(rate)]
    with children.started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield counts
        output, _ = process.communicate("", END_WITHIN_S)
        if process.returncode:
            raise RunFailed("events were not acknowledged")
        counts.append(int(output))
