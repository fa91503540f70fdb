"""`causal supervisor`, and how `causal run` deals with the supervisors that may lead a multi-host job.

The job belongs to the supervisor that leads it.  `causal run` begins or resumes the job and follows it until it ends,
even if another supervisor leads it.  A candidate on another machine waits until the leader is silent or hands over the
job.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.errors import CorruptData, PipelineError, Unavailable
from causal.storage.files import replace_text
from causal.storage.shared import Depot, insist
from deploy.hosts import host_commands
from deploy.jobs.hints import led_by
from deploy.jobs.jobdirectory import JobDirectory
from deploy.jobs.lookup import ROOT, holds_job
from deploy.launching.host_agent import Outage, fetch_code, say
from deploy.launching.local import LocalDeployment, Server, supervisor
from deploy.monitoring import exposed as exposing
from deploy.savepoints.stored_checkpoints import fetch
from standby.blueprint import Blueprint
from standby.candidate.election import FILE as IDENTITY
from standby.candidate.election import RESUMPTION, STATUS_NEWER, Identity, begun, restore, save_settings, settings_of
from standby.leadership.candidacy import LOOK_NS, SILENCE_NS
from standby.leadership.term_journal import Sighting, brought, decided, looked
from standby.leadership.terms import ENDED, STOPPED, TERMS, Entry, Term, entry_name
from standby.network.gate import address_of
from standby.storage.change_files import CHANGE
from standby.storage.journal import FILE as JOURNAL
from standby.storage.journal import Journal, journaled
from standby.storage.manifest_files import DIRECTORY as CHECKPOINTS
from standby.storage.manifest_files import newest_manifest
from standby.storage.manifests import restore_manifest
from standby.storage.store_journal import perform
from standby.supervision.effects import Record
from standby.supervision.job_view import JobView

LOOK_S, SILENCE_S = LOOK_NS / 1e9, SILENCE_NS / 1e9

OF_THIS_MACHINE = ("listen", "key", "hosts", "metrics_port", "metrics_listen")
"""Settings that apply to one machine and do not affect any task."""


def add_parser(commands: Any) -> None:
    """Add this command to those of `causal`."""
    waiting = commands.add_parser("supervisor", help="take over a job of several hosts when its supervisor is lost")
    waiting.add_argument(
        "--standby", action="store_true", required=True, help="wait until the supervisor that leads is silent"
    )
    waiting.add_argument(
        "--job", required=True, metavar="NAME", help="the pipeline's name; its first run may come later"
    )
    waiting.add_argument("--listen", required=True, metavar="tcp://ADDRESS:PORT", help="where agents join it then")
    waiting.add_argument("--store", required=True, metavar="URL", help="the job's shared store")
    waiting.add_argument("--hosts", metavar="hosts.toml", help="the public keys of hosts and supervisors")
    waiting.add_argument("--key", metavar="supervisor-NAME.key", help="this supervisor's key")
    exposing.add_options(waiting, exposing.port)
    waiting.add_argument("--state-dir", metavar="DIR", help=f"default: {ROOT}/supervisors/<job>")
    waiting.set_defaults(act=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command until the job has ended; return its exit status.

    Raises:
        PipelineError: this supervisor could not take over, for a reason that would recur at another attempt.
    """
    own = host_commands.settings_of(arguments)
    page = {"metrics_listen": "127.0.0.1", "metrics_port": 0, **exposing.settings_of(arguments)}
    _check_free(arguments.listen)
    place = Path(arguments.state_dir) if arguments.state_dir else ROOT / "supervisors" / arguments.job
    directory = JobDirectory(place)
    try:
        while True:
            run, term = _awaited(arguments.store, arguments.job)
            _prepare(directory, run, term, {name: own[name] or "" for name in ("listen", "store", "key", "hosts")})
            shown = Shown(arguments.job)
            servers: list[Server] = [supervisor(endings=(STATUS_NEWER,))]
            with exposing.exposed(page["metrics_listen"], page["metrics_port"], directory.path):
                outcome = LocalDeployment(directory.path, shown.show, servers).run()
            if outcome.status == STATUS_NEWER:
                continue  # the job was stopped, and a newer run of it has begun in the meantime
            if outcome.view is not None and outcome.view.ended is not None:
                status, reason = outcome.view.ended.status, outcome.view.ended.reason
                say(f"job {arguments.job} has ended with status {status}: {reason or 'finished'}")
                return 0
            if outcome.signal:
                say(f"job {arguments.job}: this supervisor leaves; start it again with the same command")
                return 0
            raise Unavailable(f"job {arguments.job}: {outcome.reason}")
    finally:
        directory.close()


class Shown:
    """Prints the leader of a job whenever the leader changes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last: tuple[int, bool] | None = None

    def show(self, view: JobView, elapsed_s: float) -> None:
        """Process a view of the job."""
        leader = view.leader
        if leader is None or self._last == (leader.term, leader.here):
            return
        self._last = (leader.term, leader.here)
        if leader.here:
            say(f"leads job {self._name} (term {leader.term}); its tasks keep running")
        else:
            say(f"a candidate: {led_by(leader)} leads job {self._name}")


def _check_free(listen: str) -> None:
    """Refuse an address immediately if it could not be bound later, when it is needed."""
    address, port = address_of(listen)
    try:
        socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET).close()
    except OSError as problem:
        raise PipelineError(
            f"--listen {listen} cannot be bound: {problem.strerror}; use another address or port"
        ) from None


def _awaited(store: str, name: str) -> tuple[str, Term]:
    """Wait for a run of the job that has not ended; return this run and its newest term."""
    said = ""
    while True:
        runs = insist(Depot(store, name).folders, Outage().report, lambda: True) or []
        sighting = _sighting(Depot(store, f"{name}/{runs[-1]}")) if runs else None
        if sighting is not None and not (sighting.entry is not None and sighting.entry.closing == ENDED):
            return runs[-1], sighting.term
        line = f"waiting for job {name} in {store}"
        if line != said:
            said = line
            say(line)
        time.sleep(LOOK_S)


def _sighting(depot: Depot) -> Sighting | None:
    return insist(lambda: perform(looked(None), depot), Outage().report, lambda: True)


def _prepare(directory: JobDirectory, run: str, term: Term, own: Mapping[str, Any]) -> None:
    """Turn the directory into that of a candidate; keep the identity if the same candidate has used it before."""
    path = directory.path
    directory.end_leftovers()
    if not (path / IDENTITY).exists() or not holds_job(path) or JobConfig.load(path).run != run:
        directory.clear()
        Identity(secrets.token_hex(8), successor=True).save(path)
    (path / "status.json").unlink(missing_ok=True)
    config = replace(settings_of(term.job), **own)
    if config.on:
        raise PipelineError(
            f"job {config.name} runs --on {config.on}: its agents end with `causal run`, so another "
            "supervisor cannot take over the job"
        )
    save_settings(path, config, term.graph)
    fetch_code(path, config)
    directory.open_runtime()


# The functions that `causal run` uses.


def enrol(config: JobConfig, job: Path) -> None:
    """Create an identity for the supervisor of a multi-host job, unless it already has one."""
    if config.listen and not (job / IDENTITY).exists():
        Identity(secrets.token_hex(8)).save(job)


def refuse_if_led(config: JobConfig, job: Path) -> None:
    """Refuse a new run if its place in the store is in use, or if the job's previous run is led elsewhere or was
    interrupted here.

    Raises:
        PipelineError: the run is refused; the message names the owner and the remedy.
        Unavailable: the store does not answer.
    """
    if not config.listen:
        return
    if Depot(config.store, config.place_in_store).names(TERMS):
        raise PipelineError(
            f"{config.store} contains run {config.run} of job {config.name}, in whose sinks --keep-sinks would "
            "continue; resume that run with --resume in its job directory, or use another --store"
        )
    depot, seen = _run_before(config)
    if depot is None or seen is None:
        return
    own = _holder(job)
    if seen.term.holder == own and _closing(depot, seen) not in (ENDED, STOPPED):
        raise PipelineError(
            f"job {config.name} was interrupted, and its tasks may still be running: resume it with --resume, "
            "or start again with another --state-dir"
        )
    leader = _leader(depot, own)
    if leader is not None:
        raise PipelineError(
            f"job {config.name} is led by {leader.leader}: follow that job with --resume in its job directory, or "
            "stop it first"
        )


def _run_before(config: JobConfig) -> tuple[Depot | None, Sighting | None]:
    """Return the place of the newest earlier run for which a supervisor was elected, and its latest sighting."""
    for run in reversed(Depot(config.store, config.name).folders()):
        depot = Depot(config.store, f"{config.name}/{run}")
        if run < config.run and (seen := perform(looked(None), depot)) is not None:
            return depot, seen
    return None, None


def _closing(depot: Depot, seen: Sighting) -> str:
    """Return why the leader of a term closed its journal; empty if it did not close it.

    A seal is not the leader's entry, so the entry before it is examined.
    """
    entry, place = seen.entry, seen.place
    if entry is not None and entry.sealed_by and place > 0:
        name = entry_name(seen.term.number, place - 1)
        entry = Entry.read(name, depot.read(name))
    return entry.closing if entry is not None else ""


class Brought(Enum):
    """The state, according to the store, of a job that is to be resumed here."""

    LED = "led"  # another supervisor leads the job, so the job is running and is only followed
    INTERRUPTED = "interrupted"  # the job has lost its supervisors, so its tasks may still be running
    STILL = "still"  # the job's processes have ended, or they belong to this machine


def bring(directory: JobDirectory) -> Brought:
    """Fetch the decisions of a multi-host job from the store, so that the job can be resumed here.

    Raises:
        Unavailable: the store does not answer.
    """
    try:
        return _brought(directory)
    except Unavailable as problem:
        raise Unavailable(host_commands.unreachable(problem)) from None


def _brought(directory: JobDirectory) -> Brought:
    job = directory.path
    if not holds_job(job) or not (config := JobConfig.load(job)).listen:
        return Brought.STILL
    directory.end_leftovers()
    (job / "status.json").unlink(missing_ok=True)
    depot = Depot(config.store, config.place_in_store, proof="")
    leader = _leader(depot, _holder(job))
    if leader is not None:
        say(f"job {config.name} is led by {leader.leader}: this command follows it")
        return Brought.LED
    interrupted = fetch_decisions(job)
    if (job / IDENTITY).exists() and not (job / JOURNAL).exists():
        Journal(job).close()  # the job ended before its first supervisor made a decision, so it starts only now
    return Brought.INTERRUPTED if interrupted else Brought.STILL


def takes_over(brought: Brought, before: JobConfig, config: JobConfig, job: Path, blueprint: Blueprint) -> bool:
    """Return whether an interrupted job is resumed by taking over its running tasks, and print a message about it.

    Tasks cannot be taken over if the settings or the graph have changed; they then all restart from the last
    checkpoint.  The same applies if the agents end together with `causal run`.

    Args:
        before: the job's previous settings; it resumes with `config` and `blueprint`.
    """
    own = {name: getattr(config, name) for name in OF_THIS_MACHINE}
    if brought is not Brought.INTERRUPTED or config.on:
        return False
    if replace(before, **own) != config or Blueprint.load(job) != blueprint:
        say(f"job {config.name}: its settings have changed, so its tasks restart from their last checkpoint")
        return False
    say(f"job {config.name}: tasks that are still running are taken over in place")
    return True


def fetch_decisions(job: Path) -> bool:
    """Fetch from the store, into the job directory, the decisions of a multi-host job that no supervisor leads.

    The settings, the graph and the manifest of the last checkpoint are replaced with those to which the decisions
    apply.  Files that an upgrade has left in the directory count only if the upgrade is in the store.  If no supervisor
    has begun the job, only the directory describes it.

    Returns: whether the job's processes may still be running, because no supervisor has ended them.

    Raises:
        Unavailable: the store does not answer.
    """
    config = JobConfig.load(job)
    if not config.listen:
        return False
    taken = perform(brought(), Depot(config.store, config.place_in_store))
    if taken is None or not taken[0].term:
        _check_unbegun(config, job)
    if taken is None:
        return False
    before, sighting = taken
    if before.term:
        begun(job)
        shutil.rmtree(job / CHANGE, ignore_errors=True)
        restore(job, config, before.job, before.graph)
        restore_manifest(job, before.records)
        fetch(job, ())
        if not before.interrupted:
            _check_checkpoint(config, job)
    journal = Journal(job)
    journal.append(before.records)
    journal.close()
    base = {"seen": [sighting.term.number, sighting.place], "base": [before.term, before.place]}
    replace_text(job / RESUMPTION, json.dumps(base))
    return before.interrupted


def read_decisions(job: Path) -> Sequence[Record]:
    """Return the decisions of a job that does not run here; for a multi-host job, read the store without changing it.

    Raises:
        Unavailable: the store does not answer.
        Fenced: the job runs elsewhere, and its leader has removed the requested entries.
    """
    config = JobConfig.load(job)
    if not config.listen:
        return journaled(job)
    return perform(decided(), Depot(config.store, config.place_in_store)).records


def _check_unbegun(config: JobConfig, job: Path) -> None:
    """Refuse a store that does not contain the decisions of a job that this directory's supervisor has led."""
    if (job / IDENTITY).exists() and Identity.load(job).boot:
        raise CorruptData(
            f"{config.store}: {config.place_in_store} lacks the decisions of this job; restore it from a copy, "
            "or start again without --resume"
        )


def _check_checkpoint(config: JobConfig, job: Path) -> None:
    """Refuse a store in which files of the last checkpoint are missing, before any process starts from that
    checkpoint.
    """
    newest = newest_manifest(job)
    if newest is None:
        return
    present = set(Depot(config.store, config.place_in_store, proof="").names(CHECKPOINTS))
    lacking = [path for files in newest[1].values() for path, _, _ in files if path not in present]
    if lacking:
        raise CorruptData(
            f"{config.store}: {config.place_in_store} lacks files of checkpoint {newest[0]} ({len(lacking)} in "
            f"total), such as {lacking[0]}; restore them from a copy, or start again without --resume"
        )


def _holder(job: Path) -> str:
    return Identity.load(job).holder if (job / IDENTITY).exists() else ""


def _leader(depot: Depot, own: str) -> Term | None:
    """Return the term of another supervisor if its journal grows while it is watched; None if no other one leads."""
    seen = perform(looked(None), depot)
    if seen is None or seen.term.holder == own or (seen.entry is not None and seen.entry.closing in (ENDED, STOPPED)):
        return None
    say(f"{seen.term.leader} has led this job; checking for {SILENCE_S:.0f} s whether it still does")
    until_s = time.monotonic() + SILENCE_S + LOOK_S
    while time.monotonic() < until_s:
        time.sleep(LOOK_S)
        now = perform(looked(seen), depot)
        if now is not None and (now.term.number, now.place) != (seen.term.number, seen.place):
            return now.term
    return None
