"""A job of several hosts that is changed while it runs: its commands, its rows in Redis, and what the rows prove."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from random import Random

import pytest

from benchmarks.harness.processes import AGENT, kill, workers
from benchmarks.harness.processes import SUPERVISOR as SUPERVISION
from benchmarks.harness.runs import sets
from benchmarks.hosts.site import SUPERVISOR, Site
from benchmarks.servers.process import NoServer
from benchmarks.servers.redis import Redis, redis_server
from standby.storage.change_files import CHANGE, NEXT, ROLLBACK
from tests.faults import changing
from tests.faults.changing import KEYS, TOOK, Rows
from tests.faults.job import WAIT_S, wait_for

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

    def is_changed(self, change: str) -> bool:
        """Return whether the job is the next version, as its last rows show."""
        if change == "rescale":
            return "count/2" in self.counting()
        return bool(self.rows()[-1]["version"] == (2 if change == "upgrade" else 1))

    def until_settled(self) -> None:
        """Wait until no change is under way, and every task and standby runs; complete a rollback if it is needed."""

        def settled() -> bool:
            self.site.leads(SUPERVISOR, CANDIDATE)
            view = self.site.view() or {}
            if view.get("ended") is not None:
                return True
            if view.get("state") != "running" or view["without_standby"]:
                return False
            return "9-nothing" in self.site.command("rollback", "9-nothing").stderr

        wait_for("the change has ended", settled)
        if (self.site.view() or {}).get("ended") is not None:
            self.site.await_end()
            assert "complete the rollback with --resume --rollback" in self.site.log(self.site.leader)
            self.site.leader = SUPERVISOR  # the savepoint is in its directory
            self.site.run_again("--rollback")
            for name in self.site.names:
                self.site.join(name, "--slots", "24")
            wait_for("the change has ended", settled)

    def finish(self) -> None:
        """End the sources, and check that every record has exactly one row."""
        self._gate.touch()
        assert self.site.await_end() == 0, self.site.log(self.site.leader)
        self.check()

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


CHANGES = {"rescale": ("count=4",), "upgrade": (), "rollback": ()}
VICTIMS = ("command", "supervisor", "root", "host", "agent", "zombies", "current", "next", "leader")
CANDIDATE = "supervisor-b"


class Struck:
    """A change that is under way, and what dies during it."""

    def __init__(self, changing: Changing, change: str, chance: Random) -> None:
        self.changing, self.site, self._change, self._chance = changing, changing.site, change, chance
        self._state = self.site.state(SUPERVISOR)
        self._known = {name: set(workers(self.site.state(name))) for name in self.site.names}
        self._saved = self._savepoints()
        if change == "upgrade":
            changing.path.write_text(text_of(2))
        words = (str(changing.path),) if change == "upgrade" else CHANGES[change]
        self.command = self.site.start_command(change, *words)

    def _savepoints(self) -> int:
        return len(list((self._state / "savepoints").glob("*")))

    def _of(self, name: str, fresh: bool) -> list[int]:
        """Return the processes of a host that belong to the next version, or to the current one."""
        return [pid for slot, pid in workers(self.site.state(name)).items() if (slot not in self._known[name]) == fresh]

    def _fresh(self) -> int:
        return sum(len(self._of(name, fresh=True)) for name in self.site.names)

    def until_a_step(self) -> None:
        """Wait until one of the steps has been made, or the command has ended, and then a drawn time."""
        steps: dict[str, Callable[[], object]] = {
            "has begun": lambda: True,
            "is prepared": lambda: (self._state / NEXT / "job.json").exists(),
            "has its first process": self._fresh,
            "has all processes": lambda: self._fresh() >= 5,
            "has ended the current version": lambda: (
                self._savepoints() > self._saved or (self._state / ROLLBACK).exists()
            ),
            "is to be committed": lambda: (self._state / CHANGE).exists(),
        }
        step = self._chance.choice(list(steps))
        wait_for(f"the change {step}", lambda: self.command.poll() is not None or steps[step]())
        time.sleep(self._chance.choice((0.0, self._chance.random() * 0.05, self._chance.random())))

    def strike(self, victim: str) -> None:
        """Kill the victim, and start it again if it does not return on its own."""
        site, name = self.site, self._chance.choice(self.site.names)
        if victim == "command":
            site.kill_command(self.command)
        elif victim == "supervisor" and (pid := site.process(SUPERVISOR, SUPERVISION)) is not None:
            kill(pid)
        elif victim == "agent" and (pid := site.process(name, AGENT)) is not None:
            kill(pid)
        elif victim in ("current", "next") and (pids := self._of(name, fresh=victim == "next")):
            kill(self._chance.choice(pids))
        elif victim in ("host", "zombies"):
            if victim == "host":
                site.kill_host(name)
            else:
                site.kill_agent(name)
            time.sleep(self._chance.random())
            site.join(name, "--slots", "24")
        elif victim == "root":
            site.kill_root(SUPERVISOR)
            if self._change == "rollback":  # while rows are withdrawn, the job cannot be resumed
                site.kill_command(self.command)
                self.command.wait(WAIT_S)
            site.run_again(*(("--rollback",) if (self._state / ROLLBACK).exists() else ("--code", "kept")))
        elif victim == "leader":
            site.kill_host(SUPERVISOR)
            site.kill_command(self.command)
            (self._state / "status.json").unlink()  # it says that the killed process leads
            wait_for("the candidate leads", lambda: site.leads(CANDIDATE, running=False))

    def changed(self) -> bool | None:
        """Return whether the command reports that the job has changed; None if that is not known."""
        status = self.command.wait(WAIT_S)
        assert status in (0, 1, 2, -9), status
        return None if status in (1, -9) else status == 0
