"""A host that was stopped writes to a server after its tasks were replaced: it is refused, and every row is exact."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from benchmarks.hosts.site import Site
from benchmarks.servers.postgres import cluster, postgres
from benchmarks.servers.process import NoServer
from benchmarks.servers.redis import redis_server
from tests.faults.job import wait_for
from tests.hosts.counted import SILENCE_MS, MakeSite
from tests.members import members
from tests.servers.chains import assert_exactly_once
from tests.servers.jobs import PIPELINE
from tests.servers.test_jobs import in_postgres, in_redis

COUNT, RATE = 3000, 100
INNER = "a"
"""The host of all tasks but the sink's."""


@contextmanager
def _postgres() -> Iterator[Any]:
    pytest.importorskip("psycopg", reason="psycopg is not installed (extra postgres)")
    with cluster() as template, postgres(template) as server:
        yield server


@contextmanager
def _redis() -> Iterator[Any]:
    pytest.importorskip("redis", reason="redis is not installed (extra redis)")
    with redis_server() as server:
        yield server


Server = tuple[Callable[[], AbstractContextManager[Any]], Callable[[Any], dict[str, str]], Callable[[Any], list[Any]]]
SERVERS: dict[str, Server] = {
    "postgres": (_postgres, lambda server: {"dsn": server.dsn}, in_postgres),
    "redis": (_redis, lambda server: {"url": server.url}, in_redis),
}
"""Name → the server, what the sink is given, and its rows.  Both are reached over a socket in the file system, so no
network that is cut comes between them and a host."""


CASES = [(kind, guarantee) for kind in SERVERS for guarantee in ("causal", "epoch")]


@pytest.mark.parametrize(("kind", "guarantee"), members(CASES))
def test_a_zombie_that_writes_after_it_was_replaced_is_refused(site: MakeSite, kind: str, guarantee: str) -> None:
    serve, sink_of, rows_of = SERVERS[kind]
    try:
        with serve() as server:
            here = site([INNER, "b", "c"])
            _began(here, sink_of(server), guarantee)
            zombie = here.host_of("out/0") or ""
            here.signal(zombie, signal.SIGSTOP)
            wait_for("its host is lost", lambda: here.host(zombie).get("state") == "lost")
            rows = len(rows_of(server))
            wait_for("its successor writes", lambda: len(rows_of(server)) > rows + 100)
            here.network.cut(zombie)  # its agent must not hear that it was replaced before the sink writes
            here.signal(zombie, signal.SIGCONT)
            if guarantee == "causal":  # rows that wait are written when a barrier comes, and none comes to a zombie
                wait_for("it is refused", lambda: _refused(here, zombie))
            here.network.heal(zombie)
            wait_for("it joins again", lambda: here.host(zombie).get("incarnation") == 2)
            (here.directory / "gate").touch()
            assert here.await_end() == 0, here.log("supervisor")
            assert_exactly_once(rows_of(server), COUNT)
    except NoServer as problem:
        pytest.skip(str(problem))


def _began(here: Site, sink: dict[str, str], guarantee: str) -> None:
    values = {"count": COUNT, "rate": RATE, "gate": here.directory / "gate", "inner": INNER, **sink}
    config = here.directory / "job.toml"
    config.write_text(f"host_timeout_ms = {SILENCE_MS}\n")
    here.run(PIPELINE, *sets(**values), "--config", str(config), "--guarantee", guarantee)
    for name in here.names:
        here.join(name, "--slots", "10")
    here.await_running(100)


def _refused(here: Site, host: str) -> bool:
    """Return whether a process of that host says that its store has fenced it."""
    return any("fenced: sink task out/0" in log.read_text() for log in (here.state(host) / "logs").glob("w*.log"))
