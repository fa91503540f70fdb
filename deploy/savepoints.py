"""`causal savepoint`: end a running job at a checkpoint that another pipeline can go on from; and how that one begins.

It begins offline: first snapshots of its tasks, a manifest and a journal that begin with them.  They are prepared
beside the old ones and put in their place at once, so an interrupted change has happened or has not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from causal.checkpointing import Cut
from causal.config import JobConfig
from causal.errors import PipelineError, Unavailable
from causal.ids import OUTSIDE
from causal.ports import StagingStore
from causal.shell.disk import SNAPSHOT_SUFFIX
from causal.shell.files import make_directory, read_parts, sync_directory, write_parts
from causal.topology import Task, Topology
from deploy.jobdirectory import BEGAN, CHANGE, JobDirectory, find_job, running
from operators.plan import Plan
from operators.rescaling import Rescaling, Saved
from standby.blueprint import Blueprint
from standby.checkpoints import as_files
from standby.control import ask
from standby.effects import Files
from standby.journal import Journal
from standby.manifests import DIRECTORY, newest_manifest, write_manifest
from standby.roster import Roster
from standby.savepoints import STOPPED

ANSWER_S = 5.0
LOOK_S = 0.1


def change(
    directory: JobDirectory, config: JobConfig, planned: Plan, blueprint: Blueprint, allow_dropped: bool
) -> None:
    """Have the job in `directory` go on as another graph, if it is another one than before.

    Raises:
        PipelineError: it did not stop at a savepoint, or cannot go on as this graph.
    """
    job = directory.path
    before = Blueprint.load(job).topology
    if before == blueprint.topology:
        return
    epoch, files, incarnation = _stopped_at(job, before)
    saved = [_read(job, task, files[task.name]) for task in before.tasks]
    stood = {name: where for each in saved for name, where in _stood(before, each)}
    rescaling = Rescaling(before, saved, planned, config.key_groups, allow_dropped)
    _begin(directory, config, planned, blueprint, rescaling, rescaling.chains(), stood, epoch, incarnation)


@dataclass(frozen=True, slots=True)
class Beginning:
    """A savepoint as another job will begin with it; nothing is changed by reading it."""

    where: Path
    epoch: int
    rescaling: Rescaling
    chains: Mapping[str, list[bytes]]


def beginning(where: Path, job: Path, config: JobConfig, planned: Plan, allow_dropped: bool) -> Beginning:
    """The savepoint in `where`, for a new job in the directory `job`.

    Raises:
        PipelineError: there is none, or the job cannot begin with it as this graph.
    """
    if where.resolve() == job:
        raise PipelineError(f"{where} is the job's own directory; go on with --resume, or give another --state-dir")
    if not where.is_dir():
        raise PipelineError(f"{where} holds no savepoint; make one with `causal savepoint --to {where}`")
    before, told = Blueprint.load(where).topology, JobConfig.load(where)
    found = newest_manifest(where)
    if found is None:
        raise PipelineError(f"{where} holds no savepoint; make one with `causal savepoint --to {where}`")
    if told.key_groups != config.key_groups:
        raise PipelineError(f"the savepoint in {where} has key_groups {told.key_groups}; give the same")
    if planned.companions(job):
        raise PipelineError(
            f"a source of {config.name} reads a log in the directory of its job; end that job with "
            "`causal savepoint --stop` and go on with --resume"
        )
    epoch, files = found
    saved = [_read(where, task, files[task.name]) for task in before.tasks]
    rescaling = Rescaling(before, saved, planned, config.key_groups, allow_dropped)
    return Beginning(where, epoch, rescaling, rescaling.chains())


def begin_from(
    directory: JobDirectory, begins: Beginning, config: JobConfig, planned: Plan, blueprint: Blueprint
) -> None:
    """Have a new job in `directory`, which is empty, begin with a savepoint.

    Raises:
        PipelineError: a store of the job cannot take its rows.
    """
    if (begins.where / BEGAN).exists():  # by that clock a source knows which of its records are due
        shutil.copy(begins.where / BEGAN, directory.path / BEGAN)
    _begin(directory, config, planned, blueprint, begins.rescaling, begins.chains, {}, begins.epoch, 1)


def _begin(
    directory: JobDirectory,
    config: JobConfig,
    planned: Plan,
    blueprint: Blueprint,
    rescaling: Rescaling,
    chains: Mapping[str, list[bytes]],
    stood: Mapping[str, tuple[int, int]],
    epoch: int,
    incarnation: int,
) -> None:
    """Make the first snapshots of all tasks, and have the job begin with them."""
    job = directory.path
    cuts = rescaling.cuts(_open_stores(job, config, planned, stood, incarnation, epoch))
    fresh: dict[str, Files] = {}
    for task, parts in chains.items():
        path = f"{DIRECTORY}/{task}/e{epoch:08d}-i{incarnation}{SNAPSHOT_SUFFIX}"
        size, digest = write_parts(job / path, [cuts[task].pack(), *parts], durable=True)
        fresh[task] = ((path, size, digest),)
    _prepare(job, config, blueprint, epoch, fresh, incarnation)
    directory.change()


def _stopped_at(job: Path, before: Topology) -> tuple[int, dict[str, Files], int]:
    """(epoch of the savepoint, files by task, an incarnation above all that there were)."""
    journal = Journal(job)
    try:
        records = journal.records()
    finally:
        journal.close()
    roster = Roster(before)
    epoch, stopped, files = 0, False, dict[str, Files]()
    final = 0
    for record in records:
        roster.apply(record)
        if record["kind"] == "savepoint" and record["final"]:
            final = record["epoch"]
        elif record["kind"] == "checkpoint":
            epoch, files = record["epoch"], as_files(record["files"])
            stopped = epoch == final
        elif record["kind"] in ("promoted", "rolled_back"):
            stopped = False  # unless that was to make visible what the savepoint covers (guarantee epoch)
        elif record["kind"] == "stopping":
            stopped = stopped or (epoch == final and record["reason"].startswith(STOPPED))
    if not stopped:
        raise PipelineError(
            f"the pipeline is not the one that the state in {job} was made with, and that job did not stop at a "
            "savepoint; end it with `causal savepoint --stop`, or resume with the pipeline that it had"
        )
    return epoch, files, 1 + max(seat.incarnation for seat in roster.seats.values())


def _read(job: Path, task: Task, files: Files) -> Saved:
    told = [read_parts(job / path, digest) for path, _, digest in files]
    return Saved(task, Cut.unpack(told[-1][0]), tuple(tuple(parts[1:]) for parts in told))


def _stood(before: Topology, saved: Saved) -> list[tuple[str, tuple[int, int]]]:
    """Where the task stood in its store, if it is a sink's."""
    stores = [channel.id for channel in before.outputs(saved.task.index) if channel.target == OUTSIDE]
    return [(saved.task.name, saved.cut.outputs[channel]) for channel in stores]


def _open_stores(
    job: Path, config: JobConfig, planned: Plan, stood: Mapping[str, tuple[int, int]], incarnation: int, epoch: int
) -> dict[str, tuple[int, int]]:
    """Where sink tasks begin: behind their last row, also where that was written in an earlier life of the job.

    The stores hear that the savepoint is complete, so they hold nothing any more of the graph that was.
    """
    begins: dict[str, tuple[int, int]] = {}
    for channel in planned.topology.channels:
        if channel.target != OUTSIDE:
            continue
        name = planned.topology.tasks[channel.source].name
        store = planned.store(channel, job)
        try:
            held = store.open(name, config.run, incarnation)
            if isinstance(store, StagingStore):  # what was covered is visible already, before the job stopped
                held = store.discard(epoch)
            if name in stood and held.next != stood[name][0]:
                raise PipelineError(
                    f"the store of {name} holds {held.next} rows, at the savepoint it held {stood[name][0]}; "
                    "restore it, or begin a new job"
                )
            store.truncate(epoch)
            begins[name] = (held.next, held.digest)
        finally:
            store.close()
    return begins


def _prepare(
    job: Path, config: JobConfig, blueprint: Blueprint, epoch: int, files: Mapping[str, Files], incarnation: int
) -> None:
    prepared = job / CHANGE
    shutil.rmtree(prepared, ignore_errors=True)
    prepared.mkdir()
    config.save(prepared)
    blueprint.save(prepared)
    write_manifest(prepared, epoch, files, sync=True)
    journal = Journal(prepared)
    told = {task: [list(file) for file in each] for task, each in files.items()}
    journal.append(
        [
            {"kind": "changed", "incarnation": incarnation},
            {"kind": "savepoint", "epoch": epoch, "final": True},
            {"kind": "checkpoint", "count": 0, "epoch": epoch, "files": told, "took_ms": 0.0},
        ]
    )
    journal.close()


def savepoint(arguments: argparse.Namespace) -> int:
    """The command; returns its exit status.

    Raises:
        PipelineError: there is no such job, or it does not run.
        Unavailable: the job ended before it came to the savepoint.
    """
    job = find_job(arguments.job, arguments.state_dir)
    if bool(arguments.stop) == bool(arguments.to):
        raise PipelineError("a savepoint ends the job or is copied: give --stop or --to DIR")
    answer = ask(str(_sockets(job)), "savepoint", {"final": arguments.stop}, ANSWER_S)
    if answer is None and _over(job, ANSWER_S):
        raise Unavailable(f"the job in {job} ended before its savepoint: {_ended(job) or 'it has finished'}")
    if answer is None:
        raise Unavailable(f"the supervisor of the job in {job} does not answer; see {job}/logs/supervisor.log")
    if not answer.get("ok"):
        raise Unavailable(str(answer.get("error")))
    if arguments.to:
        epoch = _copied(job, Path(arguments.to), int(answer["epoch"]))
        print(f"savepoint {epoch} is in {arguments.to}; begin with it: causal run PIPELINE.py --from {arguments.to}")
        return 0
    reason = _ended(job)
    if not reason.startswith(STOPPED):
        raise Unavailable(f"the job in {job} ended before its savepoint: {reason or 'it has finished'}")
    print(f"{reason}; go on with: causal run PIPELINE.py --resume --state-dir {job}")
    return 0


def _copied(job: Path, to: Path, epoch: int) -> int:
    """Copy the newest complete checkpoint from `epoch` on, with all that a job needs to begin with it."""
    try:
        to.mkdir(parents=True, exist_ok=True)
        if any(to.iterdir()):
            raise PipelineError(f"{to} is not empty; give another directory for the savepoint")
    except OSError as problem:
        raise PipelineError(f"--to {to} cannot be used: {problem.strerror}") from None
    while True:
        still = running(job)
        found = newest_manifest(job)
        if found is not None and found[0] >= epoch and _copy(job, to, *found):
            return found[0]
        if not still:
            raise Unavailable(f"the job in {job} ended before its savepoint")
        time.sleep(LOOK_S)


def _copy(job: Path, to: Path, epoch: int, files: Mapping[str, Files]) -> bool:
    """Copy it so that it survives a loss of power, the manifest last; False if it is too old by now, its files gone."""
    try:
        for path, _, _ in (file for each in files.values() for file in each):
            make_directory((to / path).parent, durable=True)
            _copy_durably(job / path, to / path)
    except FileNotFoundError:
        shutil.rmtree(to / DIRECTORY)
        return False
    for name in ("job.json", "topology.json", BEGAN):
        if (job / name).exists():
            _copy_durably(job / name, to / name)
    sync_directory(to.parent)
    write_manifest(to, epoch, files, sync=True)
    return True


def _copy_durably(source: Path, target: Path) -> None:
    shutil.copy(source, target)
    with open(target, "rb") as file:
        os.fsync(file.fileno())
    sync_directory(target.parent)


def _sockets(job: Path) -> Path:
    if not running(job):
        raise PipelineError(f"the job in {job} is not running; `causal run --resume` goes on with it")
    return Path((job / "runtime").read_text().strip())


def _over(job: Path, within_s: float) -> bool:
    """Whether the job is over before so much time has passed: its supervisor ends before `causal run` does."""
    deadline = time.monotonic() + within_s
    while running(job):
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_S)
    return True


def _ended(job: Path) -> str:
    """The reason for which the job ended, once every process of it is gone."""
    while not _over(job, ANSWER_S):
        continue
    view: dict[str, Any] = json.loads((job / "status.json").read_text())
    if view["ended"] is None:
        return "it was interrupted"
    return str(view["ended"]["reason"])
