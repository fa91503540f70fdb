"""A job that reads a topic: processes killed, its broker stopped, messages aborted, partitions added, input lost."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.harness.runs import sets
from benchmarks.servers.kafka import Broker
from tests.faults.conftest import Start
from tests.faults.job import causal, wait_for
from tests.servers.test_kafka_source import transaction

PIPELINE = Path(__file__).resolve().parent / "pipelines" / "topics.py"
EACH = 60
"""The messages of a step in each partition."""


def test_each_message_counts_once_whatever_dies(own_kafka: Broker, start: Start, tmp_path: Path) -> None:
    topics, out = own_kafka.topics, tmp_path / "out.db"
    topics.create("t", 2)
    wanted: Counter[tuple[int, int]] = Counter()

    def put(begin: int, partition: int, commits: bool = True) -> None:
        with transaction(topics, f"{partition}-{begin}-{commits}", commits) as producer:
            for n in range(begin, begin + EACH):
                producer.produce("t", b'{"n": %d}' % n, partition=partition)
        if commits:
            wanted.update((partition, n) for n in range(begin, begin + EACH))

    def until_all_are_written() -> None:
        wait_for(f"{wanted.total()} rows", lambda: read(out).total() >= wanted.total() or None)
        assert read(out) == wanted

    for partition in range(2):
        put(0, partition)
        put(1000, partition, commits=False)
    job = start(PIPELINE, *sets(servers=own_kafka.servers, topic="t", out=out), config={"checkpoint_interval_s": 0.3})
    until_all_are_written()
    for begin, task in enumerate(("in/0", "in/1", "count/0", "in/0"), 1):
        for partition in range(2):
            put(EACH * begin, partition)
        job.replace(task)
        until_all_are_written()
    stop(own_kafka)
    job.strike("in/1")
    own_kafka.start()
    put(5 * EACH, 1)
    until_all_are_written()

    topics.grow("t", 3)
    put(0, 2)
    status, said = causal(tmp_path, "rescale", "count=3", "--state-dir", str(job.state))
    assert status == 0, said
    job.note_change()
    put(6 * EACH, 0)
    until_all_are_written()
    job.until("a checkpoint covers the input", lambda view: lag(view) == 0 and view["checkpoint"]["count"] > 0)

    job.kill_everything()
    put(7 * EACH, 0)
    topics.delete("t", 0, topics.rows("t", partitions=[0])[-2].offset)
    job.start("--resume")
    status, said = job.finish()
    assert status == 1
    assert "partition 0: topic t has lost the messages from offset" in said and "retention removed them" in said


def lag(view: dict[str, Any]) -> int:
    tasks = [task["figures"].get("input_lag") for task in view["tasks"] if task["source"]]
    return -1 if None in tasks else sum(tasks)


def stop(broker: Broker) -> None:
    """Stop a broker in order, because noida-db loses rows of the last second in `kill -9`."""
    for pid in broker.pids:
        os.kill(pid, signal.SIGTERM)
    wait_for("the broker has stopped", lambda: not broker.topics.answers() or None)
    broker.kill()


def read(path: Path) -> Counter[tuple[int, int]]:
    """Return how often each message is in the output."""
    if not path.exists():
        return Counter()
    db = sqlite3.connect(path)
    try:
        rows = [json.loads(record)["at"] for (record,) in db.execute("SELECT record FROM output")]
    except sqlite3.OperationalError:
        return Counter()
    finally:
        db.close()
    return Counter((partition, n) for partition, n in rows)
