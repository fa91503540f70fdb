"""The demonstration with Kafka: a broker, events in a topic, kills of every process, a restart of the broker, a check.

The rows are read twice, as `read_committed` and as `read_uncommitted` readers see them. The broker is noida-db from
PyPI, which speaks Kafka's protocol; KAFKA_BOOTSTRAP names a cluster instead, which is not restarted.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.kafka_counts import event, link

ROOT = Path(__file__).resolve().parents[1]
COUNT, RATE = 10_000, 2_000
"""Events of each of two partitions, and events per second of both."""
KILLS = (("events/0", 1.0), ("count/0", 2.0), ("count/1", 3.0), ("out/0", 4.0), ("out/0", 9.5))
REST_S = 2.0
"""The pause before the broker is restarted."""
WAIT_S = 30.0
STILL_S = 3.0
"""The job is ended after this time without a new row."""


class Broker:
    """One noida-db on loopback, with its data in a directory."""

    def __init__(self, directory: Path) -> None:
        wheel = importlib.util.find_spec("noida_db")
        if wheel is None or not wheel.submodule_search_locations:
            raise SystemExit("kafka_demo: noida-db is not installed; run `pip install noida-db`, or `make demo-kafka`")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        program = Path(wheel.submodule_search_locations[0]) / "noida-db"
        self.servers = f"127.0.0.1:{port}"
        self._argv = [str(program), "start", "--only", "kafka", "--kafka-port", str(port), "--data-dir", str(directory)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(self._argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        host, _, port = self.servers.partition(":")
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    return
            time.sleep(0.02)
        raise SystemExit("kafka_demo: the broker does not answer")

    def stop(self) -> None:
        """End it with SIGTERM, so that it saves the rows that it has acknowledged."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(WAIT_S)
            self._process = None


def make_topics(servers: str) -> None:
    """Make the topic of the events and that of the rows."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    for topic, partitions in (("events", 2), ("counts", 3)):
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)


def feed(servers: str, numbers: range) -> None:
    """Append the events with these numbers to each partition of their topic, at their rate."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    began_s = time.monotonic()
    for number, i in enumerate(numbers):
        for partition in range(2):
            producer.produce("events", json.dumps(event(partition, i)).encode(), partition=partition)
        producer.poll(max(began_s + 2 * number / RATE - time.monotonic(), 0))
    producer.flush(WAIT_S)


def rows_of(servers: str, topic: str, isolation: str) -> list[tuple[str, int, bytes]]:
    """Return (task, position, value) of each message that a reader with this isolation level sees."""
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            # All in one fetch: noida-db hides what a producer commits after an aborted transaction from later fetches.
            "max.partition.fetch.bytes": 64 << 20,
            "fetch.max.bytes": 64 << 20,
        }
    )
    partitions = list(reader.list_topics(topic, WAIT_S).topics[topic].partitions)
    reader.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    written: list[tuple[int, str, int, bytes]] = []
    ended = 0
    while ended < len(partitions):
        message = reader.poll(WAIT_S)
        if message is None:
            raise SystemExit("kafka_demo: the topic cannot be read to its end")
        if message.error() is not None:
            ended += 1
            continue
        headers = dict(message.headers())
        _, at_ms = message.timestamp()
        written.append((at_ms, headers["task"].decode(), int(headers["position"]), message.value()))
    reader.close()
    return [(task, position, value) for _, task, position, value in sorted(written, key=lambda row: row[0])]


def compare(rows: Sequence[tuple[str, int, bytes]], count: int) -> dict[str, int]:
    """Count rows that are lost, that came again, and that contradict the chain of their key.

    Of the rows at one position, only the latest can have been committed, so it counts.
    """
    values: dict[tuple[str, int], bytes] = {}
    repeated = contradicted = 0
    for task, position, value in rows:
        repeated += (task, position) in values
        values[task, position] = value
    chains: dict[str, tuple[int, int]] = {}
    seen = set()
    for _, value in sorted(values.items()):
        row: dict[str, Any] = json.loads(value)
        n, before = chains.get(row["key"], (0, 0))
        contradicted += row["n"] != n + 1 or row["hash"] != link(row, before)
        chains[row["key"]] = (row["n"], row["hash"])
        seen.add((row["partition"], row["i"]))
    doubled = len(values) - len(seen)
    wanted = {(partition, i) for partition in range(2) for i in range(count)}
    return {"rows": len(values), "lost": len(wanted - seen), "doubled": doubled, "contradicted": contradicted,
            "came again": repeated}  # fmt: skip


def run(directory: Path, servers: str, broker: Broker | None) -> bool:
    """Run the job with its kills and restart the broker meanwhile; end the job when all rows are there, or none come.

    Return whether the job ran until it was ended.
    """
    argv = [sys.executable, "-m", "deploy", "run", str(ROOT / "examples" / "kafka_counts.py")]
    argv += ["--set", f"servers={servers}"]
    argv += ["--state-dir", str(directory / "job")]
    for task, seconds in KILLS:
        argv += ["--kill", f"{task}@{seconds}"]
    job = subprocess.Popen(argv, cwd=ROOT)
    try:
        feed(servers, range(COUNT // 2))
        if broker is not None:
            time.sleep(REST_S)  # noida-db loses what arrives while it saves
            print("the broker is restarted", flush=True)
            broker.stop()
            broker.start()
        feed(servers, range(COUNT // 2, COUNT))
        rows, before = 0, -1
        while job.poll() is None and before < rows < 2 * COUNT:
            time.sleep(STILL_S)
            rows, before = len(rows_of(servers, "counts", "read_committed")), rows
        running = job.poll() is None
        job.send_signal(signal.SIGINT)
        job.wait()
        return running
    finally:
        if job.poll() is None:
            job.terminate()
            job.wait()


def main() -> int:
    """Run everything, print what readers see, and return 0 if no row is lost, doubled or contradicted."""
    with tempfile.TemporaryDirectory(prefix="kafka-demo-") as place:
        directory = Path(place)
        broker = None if "KAFKA_BOOTSTRAP" in os.environ else Broker(directory / "broker")
        servers = os.environ["KAFKA_BOOTSTRAP"] if broker is None else broker.servers
        if broker is not None:
            broker.start()
        try:
            make_topics(servers)
            good = run(directory, servers, broker)
            for isolation in ("read_committed", "read_uncommitted"):
                counts = compare(rows_of(servers, "counts", isolation), COUNT)
                print(f"{isolation}: " + ", ".join(f"{number:,} {name}" for name, number in counts.items()))
                good &= not (counts["lost"] or counts["doubled"] or counts["contradicted"])
                good &= isolation != "read_committed" or not counts["came again"]
        finally:
            if broker is not None:
                broker.stop()
    print("every row is there, once" if good else "rows are wrong")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
