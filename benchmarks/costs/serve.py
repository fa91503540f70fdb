"""Measures `causal serve`: gets of a key over HTTP while a job runs at 10,000 records/s, and calls of `causal state`.

`get_ms` is the median of gets that follow each other on one connection, `get_p99_ms` their 99th percentile.
`gets_per_s` is what several connections receive together; `gets_per_core_s` is that ÷ the share of one core that the
server has used meanwhile.  `job_rps` is what the job has processed per second, from start to end.  `state_ms` is the
time of a `causal state OPERATOR KEY` of the same job, from start to exit, and `state_cpu_ms` its CPU time.
"""

from __future__ import annotations

import os
import random
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.harness import children
from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.harness.runs import KEYED_COUNT, RunFailed, last_line
from benchmarks.harness.usage import cpu_s
from benchmarks.harness.watched import Watched, watched
from deploy.serving.host_names import TOKEN

OPERATOR = "count"
KEYS = range(1, 1000)
WITHIN_S = 60.0
ANSWER_BYTES_MAX = 1 << 16
OPTIONS = (
    Option("rounds", 5, "measurements"),
    Option("seconds", 5.0, "of gets in each round, on one connection and on several"),
    Option("connections", 4, "at the same time"),
    Option("rate", 10_000, "records/s of the job"),
    Option("states", 5, "calls of `causal state` in each round"),
)


class Client:
    """One connection that sends gets."""

    def __init__(self, port: int, token: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = f" HTTP/1.1\r\nHost: 127.0.0.1\r\n{TOKEN}: {token}\r\n\r\n".encode()

    def ask(self) -> None:
        """Send a get of some key."""
        self._socket.sendall(b"GET /state/%b/%d%b" % (OPERATOR.encode(), random.choice(KEYS), self._rest))

    def answer(self) -> bytes:
        """Return the body of the next answer, which must be good."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._received()
        head, _, body = data.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RunFailed(f"a get was refused: {body[:200].decode(errors='replace')}")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += self._received()
        return body

    def close(self) -> None:
        self._socket.close()

    def _received(self) -> bytes:
        data = self._socket.recv(ANSWER_BYTES_MAX)
        if not data:
            raise RunFailed("the server has closed a connection")
        return data


@contextmanager
def served(job: Path) -> Iterator[tuple[int, int, str]]:
    """Yield (pid, port, token) of a `causal serve` of a job."""
    command = [sys.executable, "-P", "-m", "deploy", "serve", "--state-dir", str(job)]
    env = {**os.environ, "PYTHONPATH": str(children.ROOT)}
    with children.started(command, stdout=subprocess.PIPE, text=True, cwd=job.parent, env=env) as process:
        assert process.stdout is not None
        address, _, token = process.stdout.readline().rpartition(" ")[2].strip().partition("#")
        if not address:
            raise RunFailed("causal serve printed no address")
        yield process.pid, int(address.split(":")[2].partition("/")[0]), token


def _one_by_one(run: Measurement, client: Client) -> None:
    times_ms, until_s = list[float](), time.monotonic() + run.options.seconds
    while time.monotonic() < until_s:
        began_ns = time.monotonic_ns()
        client.ask()
        client.answer()
        times_ms.append((time.monotonic_ns() - began_ns) / 1e6)
    run.add("get_ms", median(times_ms))
    run.add("get_p99_ms", quantiles(times_ms, n=100)[98])


def _together(run: Measurement, clients: list[Client], pid: int) -> None:
    count, used_s, began_s = 0, cpu_s(pid), time.monotonic()
    for client in clients:
        client.ask()
    while time.monotonic() < began_s + run.options.seconds:
        for client in clients:
            client.answer()
            client.ask()
            count += 1
    for client in clients:
        client.answer()
    run.add("gets_per_s", count / (time.monotonic() - began_s))
    run.add("gets_per_core_s", count / (cpu_s(pid) - used_s))


def _states(run: Measurement, job: Path) -> None:
    command = [sys.executable, "-P", "-m", "deploy", "state", str(job), OPERATOR, "1"]
    env = {**os.environ, "PYTHONPATH": str(children.ROOT)}
    for _ in range(run.options.states):
        used_s, began_s = _children_s(), time.monotonic()
        ended = children.run(command, WITHIN_S, env)
        if ended.returncode:
            raise RunFailed(f"causal state ended with {ended.returncode}: {last_line(ended.stderr)}")
        run.add("state_ms", (time.monotonic() - began_s) * 1e3)
        run.add("state_cpu_ms", (_children_s() - used_s) * 1e3)


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _measure(run: Measurement) -> None:
    options = run.options
    seconds = 20 + options.rounds * (2 * options.seconds + options.states)
    settings = {"count": int(options.rate * seconds), "rate": options.rate}
    with watched(KEYED_COUNT, settings, ()) as job, ExitStack() as ending:
        job.until("a checkpoint is complete", lambda view: view["checkpoint"]["complete"] > 1, WITHIN_S)
        pid, port, token = ending.enter_context(served(job.directory))
        clients = [Client(port, token) for _ in range(options.connections)]
        for client in clients:
            ending.callback(client.close)
        for number in run.rounds():
            _one_by_one(run, clients[0])
            _together(run, clients, pid)
            _states(run, job.directory)
            run.report(
                f"{number}: get {run.last('get_ms'):.2f} ms, {run.last('gets_per_s'):.0f} gets/s, "
                f"causal state {run.last('state_ms'):.0f} ms"
            )
        _until_over(run, job, seconds)


def _until_over(run: Measurement, job: Watched, seconds: float) -> None:
    run.add("job_rps", job.report(seconds + WITHIN_S)["throughput_rps"])


SETTINGS: dict[str, Any] = {"pipeline": KEYED_COUNT.name}
BENCHMARK = Benchmark("serve", OPTIONS, _measure, digits=3, digits_of={"_s": 0, "_rps": 0}, settings=SETTINGS)
