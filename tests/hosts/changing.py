"""A job of several hosts that is changed while it runs: its commands, its rows in Redis, and what the rows prove."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from benchmarks.hosts.site import SUPERVISOR, Site
from benchmarks.servers.process import NoServer
from benchmarks.servers.redis import Redis, redis_server
from tests.faults import changing
from tests.faults.changing import KEYS, TOOK, Rows
from tests.faults.job import wait_for

ELEMENTS = 4_000
"""The elements of each partition, more than there is time for before the gate opens."""
LEDGER = (
    changing.LEDGER.replace(str(changing.ELEMENTS), str(ELEMENTS))
    .replace("import SqliteSink", "import RedisSink")
    .replace('SqliteSink("out.db")', 'RedisSink(settings["url"], stream="ledger")')
)


def text_of(version: int) -> str:
    """Return the code of a version, whose rows name it."""
    return LEDGER.replace("VERSION = 1", f"VERSION = {version}")


@contextmanager
def server() -> Iterator[Redis]:
    """Yield a Redis whose socket all hosts of this machine reach; without one, skip the test."""
    try:
        with redis_server(appendfsync="no") as started:
            yield started
    except NoServer as lacking:
        pytest.skip(str(lacking))


class Changing:
    """A job with the pipeline `LEDGER` on the hosts of a site, which ends once its gate is open."""

    def __init__(self, site: Site, redis: Redis, *arguments: str, slots: int = 24, **config: object) -> None:
        self.site, self._redis, self._gate = site, redis, site.directory / "gate"
        self.path = site.directory / "ledger.py"
        self.path.write_text(LEDGER)
        file = site.directory / "job.toml"
        config = {"host_timeout_ms": 15_000, "crash_loop_max": 100, "hosts_expected": len(site.names), **config}
        file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in config.items()))
        values = sets(gate=self._gate, url=redis.url, rate=200)
        interval = ("--checkpoint-interval", "0.5")
        site.run(self.path, *values, "--config", str(file), *interval, *arguments)
        for name in site.names:
            site.join(name, "--slots", str(slots))
        site.await_running(100)

    def changed(self, *words: str) -> str:
        """Return the one line of a change that must succeed."""
        done = self.site.command(*words)
        logs = "\n".join(self.site.log_of(name, "supervisor")[-3000:] for name in (SUPERVISOR,))
        assert done.returncode == 0, f"{done.stderr}\n{logs}"
        assert len(done.stdout.splitlines()) == 1 and TOOK.search(done.stdout) and not done.stderr, done
        return done.stdout

    def refused(self, *words: str, status: int = 2) -> str:
        """Return the one line of a change that must be refused."""
        done = self.site.command(*words)
        assert done.returncode == status and not done.stdout and len(done.stderr.splitlines()) == 1, done
        return done.stderr

    def upgraded(self, version: int, *options: str) -> str:
        """Return the one line of an upgrade to a version of the code."""
        self.path.write_text(text_of(version))
        return self.changed("upgrade", str(self.path), *options)

    def rows(self) -> Rows:
        with self._redis.client() as client:
            return [json.loads(fields["record"]) for _, fields in client.xrange("ledger:out/0")]

    def until_more(self, count: int = 100) -> None:
        """Wait until that many more rows are there."""
        wanted = len(self.rows()) + count
        wait_for(f"{count} more rows are there", lambda: len(self.rows()) >= wanted)

    def versions(self) -> list[int]:
        """Return the versions in the order of their rows; a version that writes after another one is there twice."""
        return [version for version, _ in groupby(row["version"] for row in self.rows())]

    def counting(self) -> set[str]:
        """Return the counting tasks of the last rows."""
        return {row["task"] for row in self.rows()[-60:]}

    def finish(self) -> dict[str, Any]:
        """End the sources; returns the report once every record has exactly one row."""
        self._gate.touch()
        assert self.site.await_end() == 0, self.site.log(SUPERVISOR)
        self.check()
        return self.site.report()

    def check(self) -> None:
        """Assert that each element has one row, and that the rows of each key are numbered in their order."""
        rows = self.rows()
        assert sorted((row["p"], row["i"]) for row in rows) == [(p, i) for p in range(2) for i in range(ELEMENTS)]
        numbers: dict[int, list[int]] = defaultdict(list)
        for row in rows:
            numbers[row["key"]].append(row["n"])
        assert len(numbers) == KEYS
        for each in numbers.values():
            assert each == list(range(1, len(each) + 1))
