"""How a job begins with a savepoint: as another version of itself, as the version before again, or as a new job.

It begins offline: first snapshots of its tasks, a manifest and a journal that begin with them.  They are prepared
beside the old ones and put in their place at once, so an interrupted change has happened or has not.  Until its first
checkpoint is complete an upgrade can be taken back: each store has a mark where the new version began to write.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from causal.checkpointing import Cut
from causal.config import JobConfig
from causal.errors import CorruptData, Fenced, PipelineError
from causal.ids import OUTSIDE
from causal.ports import Bundle, Held, Mark, SinkStore, StagingStore, WithdrawingStore
from causal.shell.disk import SNAPSHOT_SUFFIX
from causal.shell.files import read_parts, write_parts
from causal.topology import Task
from deploy import kept, letters
from deploy.jobdirectory import BEGAN, CHANGE, JobDirectory
from deploy.kept import Kept
from operators.frozen.archive import Archive
from operators.loading import load_archived
from operators.plan import Plan, plan
from operators.rescaling import Rescaling, Saved
from standby.blueprint import Blueprint
from standby.effects import Files, Record
from standby.journal import Journal
from standby.manifests import DIRECTORY, newest_manifest, write_manifest
from standby.roster import Roster
from standby.savepoints import finished

Stood = Mapping[str, tuple[int, int]]
"""By sink task: (rows, digest) of its store."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A savepoint as a job will begin with it; nothing is changed by reading it.

    Attributes:
        stores: where the stores must stand; empty for a job that has stores of its own.
    """

    where: Path
    epoch: int
    incarnation: int
    rescaling: Rescaling
    chains: Mapping[str, list[bytes]]
    stores: Stood
    name: str = ""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The upgrade with which the present version of a job began, as its journal has it.

    Attributes:
        stores: where the stores of the new version stood when it began.
        complete: whether it has completed a checkpoint since, or finished.
    """

    savepoint: str
    incarnation: int
    stores: Stood
    complete: bool


# An upgrade.


def change(
    directory: JobDirectory,
    config: JobConfig,
    planned: Plan,
    blueprint: Blueprint,
    allow_dropped: bool,
    other_code: bool = False,
) -> bool:
    """Have the job in `directory` go on as another version, if it is another one; returns whether it is.

    Whatever is refused is refused before anything has changed.

    Args:
        other_code: the code is another one than before.

    Raises:
        PipelineError: it did not stop at a savepoint, or cannot go on as this version.
    """
    job = directory.path
    found = kept.keep(job)
    before = Blueprint.load(job).topology
    if found is None:
        if before != blueprint.topology and planned.letter_task and before == planned.topology_without_letters:
            letters.add(job, config, planned)
        elif before != blueprint.topology:
            raise PipelineError(
                f"the tasks are not those that the state in {job} was made with, and that job did not stop at a "
                "savepoint: resume it with the operators and settings that it had (--on-error dead-letter may be "
                "added) and change it behind `causal savepoint --stop`, or start it afresh, without --resume"
            )
        return False
    if before == blueprint.topology and not other_code and dict(JobConfig.load(job).settings) == dict(config.settings):
        return False
    begins = _beginning(found.where, found, planned, config.key_groups, allow_dropped)
    _begin(directory, config, planned, blueprint, begins)
    return True


def _beginning(where: Path, found: Kept, planned: Plan, key_groups: int, allow_dropped: bool) -> Beginning:
    before = Blueprint.load(where).topology
    manifest = newest_manifest(where)
    if manifest is None or manifest[0] != found.epoch:
        raise CorruptData(f"{where} lacks the manifest of checkpoint {found.epoch}; restore it from a copy")
    saved = [_read(where, task, manifest[1][task.name]) for task in before.tasks]
    rescaling = Rescaling(before, saved, planned, key_groups, allow_dropped)
    return Beginning(where, found.epoch, found.incarnation, rescaling, rescaling.chains(), found.stores, found.name)


# A roll back.


def upgrade_of(job: Path) -> Upgrade | None:
    """The upgrade that the present version of a job began with; None where it began without one."""
    journal = Journal(job)
    try:
        records = journal.records()
    finally:
        journal.close()
    first = records[0] if records else None
    if first is None or first["kind"] != "changed" or not first.get("savepoint"):
        return None
    stores = {task: (rows, digest) for task, (rows, digest) in first["stores"].items()}
    roster = Roster(Blueprint.load(job).topology)
    for record in records:
        roster.apply(record)
    incarnation = 1 + max(seat.incarnation for seat in roster.seats.values())
    complete = finished(records) or any(record["kind"] == "checkpoint" and record["count"] for record in records)
    return Upgrade(first["savepoint"], incarnation, stores, complete)


def to_roll_back(job: Path) -> tuple[Upgrade, Kept]:
    """The upgrade that can be taken back, and the savepoint that it began with.

    Raises:
        PipelineError: there is none, or it can no longer be taken back.
    """
    upgrade = upgrade_of(job)
    if upgrade is None:
        raise PipelineError(f"the job in {job} runs the version that it began with; there is nothing to roll back")
    found = kept.named(job, upgrade.savepoint)
    if upgrade.complete:
        raise PipelineError(
            f"this version has completed checkpoints since savepoint {found.name}, so it is no longer rolled back; "
            f"begin a new job with that savepoint: --from {found.where} --state-dir DIR"
        )
    return upgrade, found


def present(job: Path) -> Plan:
    """The version that a job has now."""
    config = JobConfig.load(job)
    return plan(load_archived(Archive.load(job, config.code), config.settings), config)


def roll_back(
    directory: JobDirectory,
    config: JobConfig,
    planned: Plan,
    blueprint: Blueprint,
    written: Plan,
    allow_dropped: bool,
) -> int:
    """Have the job begin again with the savepoint that its present version began with; returns the rows taken back.

    Rows that the present version has put out are withdrawn from its stores.

    Args:
        planned: the version that goes on: the one before, or another one.
        written: the present version.

    Raises:
        PipelineError: it cannot be rolled back, or a store cannot take rows back; then nothing has changed.
    """
    job = directory.path
    upgrade, found = to_roll_back(job)
    begins = _beginning(found.where, found, planned, config.key_groups, allow_dropped)
    incarnation = max(upgrade.incarnation, found.incarnation)
    withdrawn = _withdraw(job, JobConfig.load(job), written, upgrade, found.epoch, incarnation)
    _begin(directory, config, planned, blueprint, replace(begins, incarnation=incarnation))
    return withdrawn


def _withdraw(job: Path, config: JobConfig, planned: Plan, upgrade: Upgrade, epoch: int, incarnation: int) -> int:
    """Take back what the stores of `planned` hold beyond the places where the upgrade began."""
    with _opened(job, config, planned, incarnation) as stores:
        for task, (store, _) in stores.items():
            if isinstance(store, StagingStore):  # nobody has seen what is staged, and a replay makes it again
                stores[task] = store, store.discard(epoch)
        places = {task: upgrade.stores.get(task, (0, 0))[0] for task in stores}
        for task, (store, held) in stores.items():
            began = places[task]
            if held.next < began:
                raise PipelineError(
                    f"the store of {task} holds {held.next} rows, and held {began} when this version began; restore it"
                )
            if held.next > began and not _mark(store, held, began):
                raise PipelineError(
                    f"the store of {task} cannot take back the {held.next - began} rows that this version has put out; "
                    "correct it and resume with --code new"
                )
        withdrawn = 0
        for task, (store, held) in stores.items():
            mark = _mark(store, held, places[task])
            if held.next > places[task] and isinstance(store, WithdrawingStore) and mark is not None:
                withdrawn += held.next - mark.next
                store.withdraw(mark)
    return withdrawn


def _mark(store: SinkStore, held: Held, began: int) -> Mark | None:
    if not isinstance(store, WithdrawingStore):
        return None
    return next((mark for mark in held.marks if mark.next == began), None)


# A copy.


def beginning(
    where: Path, job: Path, config: JobConfig, planned: Plan, allow_dropped: bool, keep_sinks: bool
) -> Beginning:
    """The savepoint in `where`, for a new job in the directory `job`.

    Args:
        keep_sinks: it goes on in the stores of the job that made the savepoint.

    Raises:
        PipelineError: there is none, or the job cannot begin with it as this graph.
    """
    if where.resolve() == job:
        raise PipelineError(f"{where} is the job's own directory; go on with --resume, or give another --state-dir")
    if not where.is_dir():
        raise PipelineError(f"{where} holds no savepoint; make one with `causal savepoint --to {where}`")
    told = JobConfig.load(where)
    if not (where / kept.FILE).exists():
        raise PipelineError(f"{where} holds no savepoint; make one with `causal savepoint --to {where}`")
    found = Kept.load(where)
    if told.key_groups != config.key_groups:
        raise PipelineError(f"the savepoint in {where} has key_groups {told.key_groups}; give the same")
    if planned.companions(job):
        raise PipelineError(
            f"a source of {config.name} reads a log in the directory of its job; end that job with "
            "`causal savepoint --stop` and go on with --resume"
        )
    begins = _beginning(where, found, planned, config.key_groups, allow_dropped)
    if keep_sinks:
        return replace(begins, name="")
    return replace(begins, name="", incarnation=1, stores={})


def begin_from(
    directory: JobDirectory, begins: Beginning, config: JobConfig, planned: Plan, blueprint: Blueprint
) -> None:
    """Have a new job in `directory`, which is empty, begin with a savepoint.

    Raises:
        PipelineError: a store of the job cannot take its rows.
    """
    if (begins.where / BEGAN).exists():  # by that clock a source knows which of its records are due
        shutil.copy(begins.where / BEGAN, directory.path / BEGAN)
    _begin(directory, config, planned, blueprint, begins)


# What they share.


def _read(job: Path, task: Task, files: Files) -> Saved:
    told = [read_parts(job / path, digest) for path, _, digest in files]
    return Saved(task, Cut.unpack(told[-1][0]), tuple(tuple(parts[1:]) for parts in told))


def _begin(directory: JobDirectory, config: JobConfig, planned: Plan, blueprint: Blueprint, begins: Beginning) -> None:
    """Make the first snapshots of all tasks, and have the job begin with them."""
    job, epoch, incarnation = directory.path, begins.epoch, begins.incarnation
    stores = open_stores(job, config, planned, begins)
    cuts = begins.rescaling.cuts(stores)
    fresh: dict[str, Files] = {}
    for task, parts in begins.chains.items():
        path = f"{DIRECTORY}/{task}/e{epoch:08d}-i{incarnation}{SNAPSHOT_SUFFIX}"
        size, digest = write_parts(job / path, [cuts[task].pack(), *parts], durable=True)
        fresh[task] = ((path, size, digest),)
    _prepare(job, config, blueprint, begins, fresh, stores)
    directory.change()


@contextmanager
def _opened(
    job: Path, config: JobConfig, planned: Plan, incarnation: int
) -> Iterator[dict[str, tuple[SinkStore, Held]]]:
    """All stores of a plan, open, and what each holds; nothing in them is changed by that but who may write."""
    stores: dict[str, tuple[SinkStore, Held]] = {}
    opened: list[SinkStore] = []
    try:
        for channel in planned.topology.channels:
            if channel.target != OUTSIDE:
                continue
            name = planned.topology.tasks[channel.source].name
            store = planned.store(channel, job)
            opened.append(store)
            try:
                stores[name] = store, store.open(name, config.run, incarnation)
            except Fenced as problem:
                raise PipelineError(f"{problem}: a job has written there since the savepoint was made") from None
        yield stores
    finally:
        for store in opened:
            store.close()


def open_stores(job: Path, config: JobConfig, planned: Plan, begins: Beginning) -> dict[str, tuple[int, int]]:
    """Where sink tasks begin: behind their last row, also where that was written in an earlier life of the job.

    The stores hear that the savepoint is complete, so they hold nothing any more of the graph that was, and are marked
    where the job begins to write, so that what it writes can be taken back.
    """
    epoch, found = begins.epoch, dict[str, tuple[int, int]]()
    topology = planned.topology
    # The store of requests is in the job's directory and holds no rows: a job in another directory begins a new one.
    asking = {topology.tasks[channel.source].name for channel in topology.channels if channel.carries_requests}
    with _opened(job, config, planned, begins.incarnation) as stores:
        for name, (store, held) in stores.items():
            # What was covered is visible already, from before the job stopped; what is staged is of a version before.
            held = store.discard(epoch) if isinstance(store, StagingStore) else held
            if name in begins.stores and name not in asking and held.next != begins.stores[name][0]:
                raise PipelineError(
                    f"the store of {name} holds {held.next} rows, at the savepoint it held {begins.stores[name][0]}; "
                    "restore it, or begin a new job"
                )
            found[name] = held.next, held.digest
        for name, (store, _) in stores.items():
            store.truncate(epoch)
            if begins.name and isinstance(store, WithdrawingStore) and not isinstance(store, StagingStore):
                next_, digest = found[name]
                store.write(Bundle(next_, 0, b"", digest, epoch, begins.incarnation, (), depends=()))
    return found


def _prepare(
    job: Path, config: JobConfig, blueprint: Blueprint, begins: Beginning, files: Mapping[str, Files], stores: Stood
) -> None:
    prepared = job / CHANGE
    shutil.rmtree(prepared, ignore_errors=True)
    prepared.mkdir()
    config.save(prepared)
    blueprint.save(prepared)
    write_manifest(prepared, begins.epoch, files, sync=True)
    journal = Journal(prepared)
    told = {task: [list(file) for file in each] for task, each in files.items()}
    changed: Record = {
        "kind": "changed",
        "incarnation": begins.incarnation,
        "savepoint": begins.name,
        "stores": {task: list(stood) for task, stood in stores.items()},
    }
    journal.append(
        [
            changed,
            {"kind": "savepoint", "epoch": begins.epoch, "final": True},
            {"kind": "checkpoint", "count": 0, "epoch": begins.epoch, "files": told, "took_ms": 0.0},
        ]
    )
    journal.close()
