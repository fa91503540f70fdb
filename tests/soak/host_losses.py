"""Hosts of a job are killed, cut off in one direction or both, stopped, drained, and their links flap, by the seed.

Job after job, each with a network of its own, until `--losses` deaths and partitions have been noticed and survived;
the sink is Redis, which goes wherever its task goes, or SQLite on a host that comes back.  What a reader saw while
hosts were lost must be what is there at the end, and every record must be there once, in its turn.  With `--json FILE`
of an earlier run it continues with the next seed.  Exit status 1 if a row was lost, doubled or contradicted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.harness.measured import figure, result, write
from benchmarks.harness.runs import RunFailed
from benchmarks.hosts.counted import PIPELINE, rows_of, wrong
from benchmarks.hosts.site import SUPERVISOR, Site
from benchmarks.servers.process import NoServer
from benchmarks.servers.redis import redis_server
from examples.hosts.network import missing
from tests.faults.job import wait_for

HOSTS = ("a", "b", "c")
RATE, SECONDS_PER_LOSS = 400, 15
"""Elements per second, for so long; beyond that the sources hold their end, and nothing enters any more."""
HOST_TIMEOUT_MS = 1000
LOST_WITHIN_S, BACK_WITHIN_S, END_WITHIN_S = 60.0, 120.0, 240.0
CALM = 0.5
"""The chance that everything is whole again before the next fault."""
FLAP_S = 0.2
NAME = "host_losses"
WRONG = ("lost", "doubled", "contradicted", "visible_contradicted")


@dataclass(slots=True)
class Outcome:
    """The outcome of one job."""

    seed: int
    sink: str
    losses: int = 0
    """Deaths and partitions that the supervisor has noticed."""
    recoveries: int = 0
    rows: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)
    took_s: float = 0.0
    problem: str = ""
    """The reason for which the job did not end well."""

    @property
    def exact(self) -> bool:
        return not self.problem and not any(self.wrong.values())


@dataclass(slots=True)
class Fire:
    """Throws faults at the hosts of one job."""

    site: Site
    rng: Random
    faults: Counter[str] = field(default_factory=Counter)

    def throw(self) -> None:
        """Throws one fault, and ends it once it was noticed."""
        joined = [name for name in HOSTS if self.site.host(name).get("state") == "joined"]
        if not joined:
            return self.whole()
        [kind] = self.rng.choices(list(_FAULTS), [weight for weight, _ in _FAULTS.values()])
        self.faults[kind] += 1
        _FAULTS[kind][1](self, self.rng.choice(joined))
        if self.rng.random() < CALM:
            self.whole()
        time.sleep(self.rng.uniform(0.0, 1.0))

    def whole(self) -> None:
        """Waits until every host is joined and every task and standby is there."""

        def all_there() -> bool:
            view = self.site.view() or {}
            states = {host["state"] for host in view.get("hosts", ())}
            return view.get("state") == "running" and states == {"joined"} and not view["without_standby"]

        wait_for("every host and standby is there again", all_there, BACK_WITHIN_S)

    def _noticed(self, name: str, incarnation: int) -> None:
        def lost() -> bool:
            host = self.site.host(name)
            return bool(host.get("state") == "lost" or host.get("incarnation", 0) > incarnation)

        wait_for(f"{name} is lost", lost, LOST_WITHIN_S)

    def _incarnation(self, name: str) -> int:
        return int(self.site.host(name).get("incarnation", 0))

    def _kill(self, name: str) -> None:
        incarnation = self._incarnation(name)
        self.site.kill_host(name)
        self._noticed(name, incarnation)
        self.site.join(name)

    def _kill_two(self, name: str) -> None:
        """Two hosts at once, or the second while the first is recovered from."""
        other = self.rng.choice([each for each in HOSTS if each != name])
        incarnations = {each: self._incarnation(each) for each in (name, other)}
        for each in incarnations:
            self.site.kill_host(each)
            time.sleep(self.rng.choice((0.0, 0.1, 0.5)))
        for each, incarnation in incarnations.items():
            self._noticed(each, incarnation)
            self.site.join(each)

    def _cut(self, name: str) -> None:
        incarnation = self._incarnation(name)
        self.site.network.cut(name)
        self._noticed(name, incarnation)
        self.site.network.heal(name)

    def _one_way(self, name: str, source: str, target: str) -> None:
        incarnation = self._incarnation(name)
        self.site.network.cut_one_way(source, target)
        self._noticed(name, incarnation)
        self.site.network.heal_one_way(source, target)

    def _deaf(self, name: str) -> None:
        self._one_way(name, SUPERVISOR, name)

    def _mute(self, name: str) -> None:
        self._one_way(name, name, SUPERVISOR)

    def _freeze(self, name: str) -> None:
        """All of its processes are stopped, and work on where they were once they are replaced."""
        incarnation = self._incarnation(name)
        self.site.signal(name, signal.SIGSTOP)
        self._noticed(name, incarnation)
        time.sleep(self.rng.uniform(0.0, 1.0))
        self.site.signal(name, signal.SIGCONT)

    def _flap(self, name: str) -> None:
        for _ in range(self.rng.randint(2, 5)):
            self.site.network.cut(name)
            time.sleep(self.rng.uniform(0.0, 2 * FLAP_S))
            self.site.network.heal(name)
            time.sleep(self.rng.uniform(0.0, FLAP_S))

    def _drain(self, name: str) -> None:
        """Tasks move off the host, which is cut off on the way once in a while."""
        self.site.command("drain", name)
        time.sleep(self.rng.uniform(0.0, 2.0))
        if self.rng.random() < 0.3 and self.site.host(name).get("state") == "draining":
            self._cut(name)
        self.site.command("drain", name, "--undo")


_FAULTS: Mapping[str, tuple[float, Callable[[Fire, str], None]]] = {
    "killed": (5, Fire._kill),
    "two killed": (1, Fire._kill_two),
    "cut off": (4, Fire._cut),
    "hears nothing": (1, Fire._deaf),
    "is not heard": (1, Fire._mute),
    "stopped": (1, Fire._freeze),
    "link flaps": (1, Fire._flap),
    "drained": (1, Fire._drain),
}
"""Name → (weight, fault)."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--losses", type=int, default=300, help="of hosts, in all jobs (default: %(default)s)")
    parser.add_argument("--per-job", type=int, default=15, help="faults per job (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the first job (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="for jobs that went wrong (default: nowhere)")


def measure(options: argparse.Namespace, command: str, progress: Callable[[str], None]) -> dict[str, Any]:
    """Runs jobs until that many hosts were lost; returns the common form with `output` and all `jobs`.

    Raises:
        RunFailed: this machine cannot have hosts.
    """
    lacking = missing()
    if lacking is not None:
        raise RunFailed(f"there can be no hosts on this machine: {lacking}")
    outcomes = _earlier(options.json)
    while sum(each.losses for each in outcomes) < options.losses and all(each.exact for each in outcomes):
        seed = options.seed + len(outcomes)
        outcomes.append(run_job(seed, options.per_job, options.keep))
        last, losses = outcomes[-1], sum(each.losses for each in outcomes)
        progress(
            f"job {seed} ({last.sink}), {last.took_s:.0f} s: {last.losses} losses, {last.rows:,} rows, "
            f"{last.problem or last.wrong}; {losses} of {options.losses} losses"
        )
        if options.json is not None:
            write(options.json, _result(options, command, outcomes))
    return _result(options, command, outcomes)


def _earlier(path: Path | None) -> list[Outcome]:
    """The jobs of the run that is continued."""
    if path is None or not path.exists():
        return []
    content = json.loads(path.read_text())
    if content.get("benchmark") != NAME:
        raise RunFailed(f"{path} holds other results; give another file")
    return [Outcome(**each) for each in content["jobs"]]


def _result(options: argparse.Namespace, command: str, outcomes: list[Outcome]) -> dict[str, Any]:
    faults: Counter[str] = Counter()
    output: Counter[str] = Counter(rows=sum(each.rows for each in outcomes), **dict.fromkeys(WRONG, 0))
    for each in outcomes:
        faults.update(each.faults)
        output.update(each.wrong)
    losses = [each.losses for each in outcomes]
    figures = {
        "losses_per_job": figure(losses, 0), "recoveries_per_job": figure([each.recoveries for each in outcomes], 0),
        "seconds_per_job": figure([each.took_s for each in outcomes], 0),
    } if outcomes else {}  # fmt: skip
    settings = {
        "losses": options.losses, "per_job": options.per_job, "seed": options.seed, "records_per_s": RATE,
        "host_timeout_ms": HOST_TIMEOUT_MS, "hosts": len(HOSTS),
    }  # fmt: skip
    wrong_rows = sum(output[name] for name in WRONG)
    problems = [f"job {each.seed}: {each.problem}" for each in outcomes if each.problem]
    summary = f"{sum(losses)} losses of hosts, {output['rows']:,} rows, {wrong_rows} wrong"
    more = {"output": dict(output), "faults": dict(faults), "losses": sum(losses), "jobs": list(map(asdict, outcomes))}
    failed = bool(wrong_rows or problems)
    return result(
        NAME, command, settings, figures, **more, failed=failed, summary="; ".join([summary, *problems])
    )  # fmt: skip


def run_job(seed: int, faults: int, keep: Path | None = None) -> Outcome:
    """Runs one job with so many faults, and checks its rows."""
    rng = Random(seed)
    outcome = Outcome(seed, "sqlite" if seed % 2 else "redis")
    count = RATE * SECONDS_PER_LOSS * faults // 2
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="causal-losses-") as name, ExitStack() as stack:
        site = Site(Path(name), HOSTS)
        stack.callback(site.close)
        try:
            with _sink(outcome) as (sink, read):
                outcome.wrong = _survived(site, rng, faults, count, sink, lambda: read(site), outcome)
        except (AssertionError, RunFailed) as problem:
            last = (site.log(SUPERVISOR).strip().splitlines() or ["it said nothing"])[-1]
            outcome.problem = f"{problem} ({last})"
        outcome.took_s = time.monotonic() - began_s
        if keep is not None and not outcome.exact:
            shutil.copytree(name, keep / f"job-{seed}", ignore_dangling_symlinks=True, dirs_exist_ok=True)
    return outcome


def _survived(
    site: Site,
    rng: Random,
    faults: int,
    count: int,
    sink: Mapping[str, str],
    read: Callable[[], list[Any]],
    outcome: Outcome,
) -> dict[str, int]:
    """Counts the wrong rows of a job after that many faults."""
    config, gate = site.directory / "job.toml", site.directory / "gate"
    config.write_text(f"host_timeout_ms = {HOST_TIMEOUT_MS}\n")
    values: dict[str, object] = {
        "count": count,
        "rate": RATE,
        "gate": gate,
        **(sink or {"out": site.directory / "out.db"}),
    }
    settings = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    site.run(PIPELINE, *settings, "--config", str(config))
    for name in HOSTS:
        site.join(name, "--slots", "12")
    site.await_running(1)
    fire, visible = Fire(site, rng), list[list[Any]]()
    for _ in range(faults):
        fire.throw()
        outcome.faults = dict(fire.faults)
        visible.append(read())
    fire.whole()
    gate.touch()
    status = site.await_end(END_WITHIN_S)
    if status:
        raise RunFailed(f"the job ended with status {status}")
    view, rows = site.view() or {}, read()
    outcome.losses, outcome.recoveries, outcome.rows = len(view["host_losses"]), len(view["recoveries"]), len(rows)
    changed = sum(row != rows[place] for seen in visible for place, row in enumerate(seen) if place < len(rows))
    vanished = sum(max(0, len(seen) - len(rows)) for seen in visible)
    return {**wrong(rows, count), "visible_contradicted": changed + vanished}


@contextmanager
def _sink(outcome: Outcome) -> Iterator[tuple[Mapping[str, str], Callable[[Site], list[Any]]]]:
    """Yields the settings of the sink, if it has any, and what reads its rows; SQLite where there is no Redis."""
    if outcome.sink == "redis":
        try:
            with redis_server() as server:

                def in_redis(site: Site) -> list[Any]:
                    with server.client() as client:
                        return [json.loads(fields["record"]) for _, fields in client.xrange("counts:out/0")]

                yield {"url": server.url}, in_redis
                return
        except NoServer:
            outcome.sink = "sqlite"
    yield {}, rows_of
