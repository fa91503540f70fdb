"""Hosts, supervisors and the store of a job are lost, in every way that `host_fire` has, by the seed.

Job after job, each with a network of its own and a candidate for its supervisor's place, until `--losses` have been
noticed and survived.  The sink is Redis, which goes wherever its task goes, or SQLite on a host that comes back; the
shared store is a directory or an S3 server on a host of its own.  Rows that a reader saw meanwhile must be there at
the end, and every record must be there once, in its turn.  With `--json FILE` of an earlier run it continues with the
next seed.  Exit status 1 if a row was lost, doubled or contradicted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.harness.measured import figure, result, write
from benchmarks.harness.runs import RunFailed, sets
from benchmarks.hosts.counted import PIPELINE, rows_of, wrong
from benchmarks.hosts.site import SUPERVISOR, Site
from benchmarks.servers.process import NoServer
from benchmarks.servers.redis import redis_server
from benchmarks.servers.s3 import BUCKET, s3_server
from examples.hosts.network import missing
from tests.soak.host_fire import CANDIDATE, FAULTS, HOSTS, STORE, Fire

RATE, SECONDS_PER_LOSS = 400, 20
"""Elements per second, for this long; beyond that the sources hold their end, and nothing enters any more."""
HOST_TIMEOUT_MS = 1000
END_WITHIN_S = 240.0
S3_PORT = 5000
NAME = "host_losses"
WRONG = ("lost", "doubled", "contradicted", "visible_contradicted")


@dataclass(slots=True)
class Outcome:
    """The outcome of one job."""

    seed: int
    sink: str
    store: str = "directory"
    losses: int = 0
    """Hosts that the job has noticed to be lost, and supervisors and stores that were."""
    lost: dict[str, int] = field(default_factory=dict)
    """Kind of what was lost → how often."""
    zombies: int = 0
    """Processes that worked on when their agent was dead and their tasks were replaced."""
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


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument(
        "--losses", type=int, default=300, help="of hosts, supervisors and stores, in all jobs (default: %(default)s)"
    )
    parser.add_argument("--per-job", type=int, default=15, help="faults per job (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the first job (default: %(default)s)")
    parser.add_argument("--kinds", type=_kinds, default=(), metavar="NAME,…", help="of faults (default: all)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="for jobs that went wrong (default: nowhere)")


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    unknown = [kind for kind in kinds if kind not in FAULTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no fault; there are: {', '.join(FAULTS)}")
    return kinds


def measure(options: argparse.Namespace, command: str, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run jobs until that many hosts were lost; returns the common form with `output` and all `jobs`.

    Raises:
        RunFailed: this machine cannot have hosts.
    """
    lacking = missing()
    if lacking is not None:
        raise RunFailed(f"there can be no hosts on this machine: {lacking}")
    outcomes = _earlier(options.json)
    while sum(each.losses for each in outcomes) < options.losses and all(each.exact for each in outcomes):
        seed = options.seed + len(outcomes)
        outcomes.append(run_job(seed, options.per_job, options.keep, options.kinds))
        last, losses = outcomes[-1], sum(each.losses for each in outcomes)
        progress(
            f"job {seed} ({last.sink}, store: {last.store}), {last.took_s:.0f} s: {last.losses} losses, "
            f"{last.rows:,} rows, {last.problem or last.wrong}; {losses} of {options.losses} losses"
        )
        if options.json is not None:
            write(options.json, _result(options, command, outcomes))
    return _result(options, command, outcomes)


def _earlier(path: Path | None) -> list[Outcome]:
    """Return the jobs of the run that is continued."""
    if path is None or not path.exists():
        return []
    content = json.loads(path.read_text())
    if content.get("benchmark") != NAME:
        raise RunFailed(f"{path} holds other results; give another file")
    return [Outcome(**each) for each in content["jobs"]]


def _result(options: argparse.Namespace, command: str, outcomes: list[Outcome]) -> dict[str, Any]:
    faults: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    output: Counter[str] = Counter(rows=sum(each.rows for each in outcomes), **dict.fromkeys(WRONG, 0))
    for each in outcomes:
        faults.update(each.faults)
        lost.update(each.lost)
        output.update(each.wrong)
    losses = [each.losses for each in outcomes]
    figures = {
        "losses_per_job": figure(losses, 0), "recoveries_per_job": figure([each.recoveries for each in outcomes], 0),
        "seconds_per_job": figure([each.took_s for each in outcomes], 0),
    } if outcomes else {}  # fmt: skip
    settings = {
        "losses": options.losses, "per_job": options.per_job, "seed": options.seed, "records_per_s": RATE,
        "host_timeout_ms": HOST_TIMEOUT_MS, "hosts": len(HOSTS),
        "kinds": list(options.kinds),
    }  # fmt: skip
    wrong_rows = sum(output[name] for name in WRONG)
    problems = [f"job {each.seed}: {each.problem}" for each in outcomes if each.problem]
    kinds = ", ".join(f"{count} of a {what}" for what, count in lost.items())
    summary = f"{sum(losses)} losses ({kinds}), {output['rows']:,} rows, {wrong_rows} wrong"
    more = {
        "output": dict(output), "faults": dict(faults), "losses": sum(losses), "lost": dict(lost),
        "zombies": sum(each.zombies for each in outcomes), "jobs": list(map(asdict, outcomes)),
    }  # fmt: skip
    failed = bool(wrong_rows or problems)
    return result(
        NAME, command, settings, figures, **more, failed=failed, summary="; ".join([summary, *problems])
    )  # fmt: skip


def run_job(
    seed: int, faults: int, keep: Path | None = None, kinds: Sequence[str] = (), site_of: type[Site] = Site
) -> Outcome:
    """Run one job with this many faults, of these kinds if any are given, and check its rows."""
    rng = Random(seed)
    outcome = Outcome(seed, "sqlite" if seed % 2 else "redis", "S3" if seed // 2 % 2 else "directory")
    count = RATE * SECONDS_PER_LOSS * faults // 2
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="causal-losses-") as name, ExitStack() as stack:
        site = site_of(Path(name), HOSTS, (CANDIDATE, STORE))
        stack.callback(site.close)
        try:
            with _sink(outcome) as (sink, read), _store(outcome, site):
                fire = Fire(site, rng, outcome.store == "S3")
                outcome.wrong = _survived(fire, faults, kinds, count, sink, lambda: read(site), outcome)
        except (AssertionError, RunFailed) as problem:
            last = (site.log(site.leader).strip().splitlines() or ["it said nothing"])[-1]
            outcome.problem = f"{problem} ({last})"
        outcome.took_s = time.monotonic() - began_s
        if keep is not None and not outcome.exact:
            shutil.copytree(name, keep / f"job-{seed}", ignore_dangling_symlinks=True, dirs_exist_ok=True)
    return outcome


def _survived(
    fire: Fire,
    faults: int,
    kinds: Sequence[str],
    count: int,
    sink: Mapping[str, str],
    read: Callable[[], list[Any]],
    outcome: Outcome,
) -> dict[str, int]:
    """Count the wrong rows of a job after that many faults."""
    site = fire.site
    config, gate = site.directory / "job.toml", site.directory / "gate"
    config.write_text(f"host_timeout_ms = {HOST_TIMEOUT_MS}\n")
    values: dict[str, object] = {
        "count": count,
        "rate": RATE,
        "gate": gate,
        **(sink or {"out": site.directory / "out.db"}),
    }
    site.run(PIPELINE, *sets(**values), "--config", str(config))
    fire.begin()
    visible = list[list[Any]]()
    for _ in range(faults):
        fire.throw(kinds)
        outcome.faults = dict(fire.faults)
        visible.append(read())
    fire.whole()
    gate.touch()
    status = _end_of(site)
    if status:
        raise RunFailed(f"the job ended with status {status}")
    view, rows = site.view() or {}, read()
    hosts = len(view["host_losses"])
    outcome.lost = {"host": hosts, **fire.lost}
    outcome.losses, outcome.recoveries, outcome.rows = sum(outcome.lost.values()), len(view["recoveries"]), len(rows)
    outcome.zombies = fire.zombies
    changed = sum(row != rows[place] for seen in visible for place, row in enumerate(seen) if place < len(rows))
    vanished = sum(max(0, len(seen) - len(rows)) for seen in visible)
    return {**wrong(rows, count), "visible_contradicted": changed + vanished}


def _end_of(site: Site) -> int:
    """Wait for the end of the job; returns the exit status of `causal run`, which follows the leader."""
    site.await_end(END_WITHIN_S)
    return site.end_of(SUPERVISOR)


@contextmanager
def _store(outcome: Outcome, site: Site) -> Iterator[None]:
    """Make the job keep the files that hosts share in the store that the outcome names; without S3 a directory."""
    if outcome.store == "S3":
        try:
            address = site.network.address(STORE)
            with s3_server(address, S3_PORT, lambda argv: site.network.command(STORE, argv)) as server:
                site.store, site.environment = f"s3://{BUCKET}/here", {**site.environment, **server.environment}
                yield
                return
        except NoServer:
            outcome.store = "directory"
    yield


@contextmanager
def _sink(outcome: Outcome) -> Iterator[tuple[Mapping[str, str], Callable[[Site], list[Any]]]]:
    """Yield the settings of the sink, if it has any, and what reads its rows; SQLite where there is no Redis."""
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
