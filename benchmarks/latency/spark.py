"""A job with a `SparkSource` beside PySpark alone: from a line that Spark is sent to the operator, and the first row.

Both read lines from a socket at a trigger of 0; the job publishes each micro-batch before an operator has it, PySpark
alone collects it in `foreachBatch`.  *p50_ms*, *p99_ms*: from the moment at which a line is sent to the moment at which
Python has it; *ready_s*: from the command to the first line.  The two take turns; every other round in the opposite
order.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import children
from benchmarks.harness.declared import CAUSAL, Benchmark, Measurement, Option
from benchmarks.harness.measured import percentile
from benchmarks.harness.processes import wait_for
from benchmarks.harness.runs import RunFailed
from benchmarks.harness.watched import watched
from benchmarks.harness.written import records_in
from benchmarks.jobs import spark_lines
from operators.spark.java import find_java, java_home

PIPELINE = Path(spark_lines.__file__)
READY_WITHIN_S = 120.0
WARM_S = 5.0
"""The time after the first row in which the JVM compiles; its rows are not counted."""

Row = tuple[int, int, int]
"""Number of a line; when it was sent, and when Python had it, in ns since 1970."""


@contextmanager
def _sent(rate: float) -> Iterator[int]:
    """Yield the port on which each connection is sent lines at a rate."""
    server = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def send(connection: socket.socket) -> None:
        with connection:
            number = 0
            while not ended.wait(1 / rate):
                try:
                    connection.sendall(b"%d %d\n" % (number, time.time_ns()))
                except OSError:
                    return  # its reader has ended
                number += 1

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=send, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server.getsockname()[1]
    finally:
        ended.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def _ours(rate: float, seconds: float) -> dict[str, float]:
    with _sent(rate) as port:
        began_ns = time.time_ns()
        with watched(PIPELINE, {"port": port}, ()) as job:
            job.until("a line was read", lambda view: job.out.exists() and any(records_in(job.out)), READY_WITHIN_S)
            return _figures(lambda: list(records_in(job.out)), began_ns, seconds)


def _bare(rate: float, seconds: float) -> dict[str, float]:
    with _sent(rate) as port, tempfile.TemporaryDirectory(prefix="causal-bench-") as name:
        path = Path(name) / "rows"
        path.touch()
        command = [sys.executable, "-m", "benchmarks.jobs.bare_spark", str(port), str(path)]
        env = {**os.environ, "JAVA_HOME": str(java_home(find_java(), Path(name))), "PYTHONPATH": str(children.ROOT)}
        began_ns = time.time_ns()
        with children.started(command, cwd=Path(name), env=env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL):
            wait_for("a line was read", lambda: path.stat().st_size > 0, READY_WITHIN_S)
            return _figures(lambda: [_row(line) for line in path.read_text().split("\n")[:-1]], began_ns, seconds)


def _row(line: str) -> Row:
    number, sent_ns, seen_ns = map(int, line.split())
    return number, sent_ns, seen_ns


def _figures(rows: Callable[[], Sequence[Row]], began_ns: int, seconds: float) -> dict[str, float]:
    """Return the figures of the rows, of which there is one already."""
    ready_ns = min(seen_ns for _, _, seen_ns in rows())
    time.sleep(WARM_S + seconds)
    took_ms = [(seen - sent) / 1e6 for _, sent, seen in rows() if sent >= ready_ns + WARM_S * 1e9]
    if not took_ms:
        raise RunFailed("no line came after the first ones")
    return {
        "p50_ms": percentile(took_ms, 0.5),
        "p99_ms": percentile(took_ms, 0.99),
        "ready_s": (ready_ns - began_ns) / 1e9,
    }


ENTRANTS = {"ours": _ours, "bare": _bare}
OPTIONS = (
    Option("rounds", 5, "alternating"),
    Option("seconds", 15.0, "of each run"),
    Option("rate", 20.0, "lines per second", setting="lines_per_s"),
)


def _measure(run: Measurement) -> dict[str, Any]:
    options = run.options
    for number in run.rounds():
        for name in list(ENTRANTS)[:: 1 if number % 2 else -1]:
            figures = ENTRANTS[name](options.rate, options.seconds)
            run.add_all(f"{name}.", figures)
            run.report(f"round {number}, {name}: {', '.join(f'{what} {value:.4g}' for what, value in figures.items())}")
        run.add("ready_over_bare", run.last("ours.ready_s") / run.last("bare.ready_s"))
        run.add("p50_over_bare", run.last("ours.p50_ms") / run.last("bare.p50_ms"))
    return {}


BENCHMARK = Benchmark(
    "spark",
    OPTIONS,
    _measure,
    digits=1,
    digits_of={"ready_s": 2, "over_bare": 2},
    settings={**CAUSAL, "trigger": "0 seconds"},
)
