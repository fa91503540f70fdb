"""Begins a job from a savepoint: as another version of itself, as its previous version, or as a new job.

This is done offline, by creating the first snapshots of the job's tasks, a manifest, and a journal that begins with
them.  They are prepared next to the old files and moved into place in one step, so that an interrupted change is
applied either completely or not at all.  For a multi-host job, the snapshots are first uploaded to the shared store,
and the change is complete once the supervisor has begun its term with the new journal.  Until then, the store contains
the old version, and the next resumption uses that version.  `deploy.savepoints.rolling_back` uses the same functions to
return to an earlier savepoint.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from causal.commands import Files
from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import CausalError, CorruptData, Fenced, PipelineError
from causal.ids import OUTSIDE
from causal.ports import Bundle, SinkStore, StagingStore, StoreState, WithdrawingStore
from causal.storage.files import naming, read_parts, write_parts
from causal.topology import Task, Topology
from deploy.jobs.jobdirectory import BEGAN, JobDirectory
from deploy.savepoints import letters, savepoint_store, stores_there
from deploy.savepoints.savepoint_store import Savepoint
from deploy.savepoints.stored_checkpoints import check_unbound, first_name, upload
from operators.builder.loading import load_archived, version_of_job
from operators.code_archive.archive import Archive
from operators.engine.plan import Plan, plan
from operators.runtime.regrouping import Saved
from operators.runtime.rescaling import Rescaling
from operators.runtime.unchanged_state import converted
from standby.blueprint import Blueprint
from standby.storage.change_files import CHANGE
from standby.storage.journal import Journal, journaled
from standby.storage.manifest_files import newest_manifest
from standby.storage.manifests import write_manifest
from standby.supervision.assignments import Assignments
from standby.supervision.effects import Record
from standby.supervision.savepoints import finished

Stood = Mapping[str, tuple[int, int]]
"""(rows, digest) of each sink task's store."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A savepoint from which a job will begin; reading it changes nothing.

    Attributes:
        stores: the positions that the stores must have; empty for a job that has its own stores.
        left: the positions of all accounts of rows at the savepoint, those of operators that were removed included.
    """

    where: Path
    epoch: int
    incarnation: int
    rescaling: Rescaling
    chains: Mapping[str, Sequence[bytes]]
    stores: Stood
    name: str = ""
    left: Stood = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The upgrade with which the current version of a job began, according to the job's journal.

    Attributes:
        complete: whether the new version has completed a checkpoint or has finished.
        finished: whether the new version has finished.
    """

    savepoint: str
    complete: bool
    finished: bool


# Upgrades.


def change(
    directory: JobDirectory,
    config: JobConfig,
    planned: Plan,
    blueprint: Blueprint,
    allow_dropped: bool,
    other_code: bool = False,
) -> bool:
    """Upgrade the job in `directory` if it resumes as another version; return whether it does.

    A change is refused, if at all, before anything has been modified.  If the job did not stop at a savepoint, only a
    dead-letter task can be added to it.

    Args:
        other_code: whether the code has changed.

    Raises:
        PipelineError: the job did not stop at a savepoint, or cannot resume as this version.
    """
    job = directory.path
    before = Blueprint.load(job).topology
    if before == blueprint.topology and not other_code and dict(JobConfig.load(job).settings) == dict(config.settings):
        return False
    savepoint = savepoint_store.keep(job)
    if savepoint is None:
        if before != blueprint.topology and planned.letter_task and before == planned.topology_without_letters:
            letters.add(job, config, planned)
        elif before != blueprint.topology:
            raise PipelineError(
                f"the tasks differ from those that wrote the state in {job}, and that job did not stop at a "
                "savepoint: resume it with its previous operators and settings, --processes and --standbys included "
                "(--on-error dead-letter may be added), and change it after `causal savepoint --stop`, or start it "
                "again without --resume"
            )
        return False
    begins = read_beginning(savepoint.where, savepoint, planned, config, allow_dropped)
    begin_with(directory, config, planned, blueprint, begins)
    return True


def read_beginning(
    where: Path, savepoint: Savepoint, planned: Plan, config: JobConfig, allow_dropped: bool, epoch: int = 0
) -> Beginning:
    """Return the savepoint in `where` as the beginning of the version `planned`; nothing is changed.

    Args:
        epoch: the first epoch of the version, where later epochs than that of the savepoint have been used.

    Raises:
        PipelineError: the version cannot begin with the savepoint's state.
        CorruptData: a file of the savepoint is damaged or missing.
    """
    check_unbound(config, planned)
    before = Blueprint.load(where).topology
    manifest = newest_manifest(where)
    if manifest is None or manifest[0] != savepoint.epoch:
        raise CorruptData(f"{where} lacks the manifest of checkpoint {savepoint.epoch}; restore it from a copy")
    epoch = epoch or savepoint.epoch
    saved = [read_saved(where, task, manifest[1][task.name], epoch) for task in before.tasks]
    rescaling, chains = converted(before, saved, planned, config.key_groups, allow_dropped, lambda: written_by(where))
    asking = {account for account in savepoint.stores if account in requesting(before)}
    left = {name: stood for name, stood in {**savepoint.left, **savepoint.stores}.items() if name not in asking}
    return Beginning(where, epoch, savepoint.incarnation, rescaling, chains, savepoint.stores, savepoint.name, left)


def requesting(topology: Topology) -> set[str]:
    """Return the names of the accounts that count requests, which contain no rows."""
    return {topology.account(channel) for channel in topology.channels if channel.carries_requests}


@contextmanager
def written_by(where: Path) -> Iterator[Plan]:
    """Yield the plan of the version that wrote the savepoint in `where`, with that version's code and settings."""
    config = JobConfig.load(where)
    with ExitStack() as stack:
        try:
            pipeline = stack.enter_context(version_of_job(where, config))
        except PipelineError as problem:
            raise PipelineError(
                f"the code that wrote the savepoint in {where} is needed to find the rows that its tables have "
                f"sent, but cannot be loaded: {problem}"
            ) from None
        yield plan(pipeline, config)


# The upgrade with which a version began.


def upgrade_of(job: Path) -> Upgrade | None:
    """Return the upgrade with which the current version of a job began; None if it did not begin with one."""
    return upgrade_in(journaled(job))


def upgrade_in(records: Sequence[Record]) -> Upgrade | None:
    """Return the upgrade with which a job began, from the decisions about it; None if there is none."""
    first = records[0] if records else None
    if first is None or first["kind"] != "changed" or not first.get("savepoint"):
        return None
    over = finished(records)
    complete = over or any(record["kind"] == "checkpoint" and record["count"] for record in records)
    return Upgrade(first["savepoint"], complete, over)


def first_incarnation(job: Path) -> int:
    """Return the lowest incarnation of the current version of the job; 0 if it did not begin from a savepoint."""
    records = journaled(job)
    return int(records[0]["incarnation"]) if records and records[0]["kind"] == "changed" else 0


def present(job: Path) -> Plan:
    """Return the plan of the current version of a job."""
    config = JobConfig.load(job)
    return plan(load_archived(Archive.load(job, config.code), config.settings), config)


# Copies.


def beginning(
    where: Path, job: Path, config: JobConfig, planned: Plan, allow_dropped: bool, keep_sinks: bool
) -> Beginning:
    """Return the savepoint in `where`, as the beginning of a new job in the directory `job`.

    Args:
        keep_sinks: whether the new job continues in the stores of the job that created the savepoint.

    Raises:
        PipelineError: there is no savepoint, or the job cannot begin from it with this graph.
    """
    if where.resolve() == job:
        raise PipelineError(f"{where} is the job directory itself; use --resume, or use another --state-dir")
    if not where.is_dir():
        raise PipelineError(f"{where} does not contain a savepoint; create one with `causal savepoint --to {where}`")
    config_before = JobConfig.load(where)
    if not (where / savepoint_store.FILE).exists():
        raise PipelineError(f"{where} does not contain a savepoint; create one with `causal savepoint --to {where}`")
    savepoint = Savepoint.load(where)
    if config_before.key_groups != config.key_groups:
        raise PipelineError(f"the savepoint in {where} has key_groups {config_before.key_groups}; use the same number")
    if planned.companions(job) or not planned.positions_travel:
        raise PipelineError(
            f"a source of {config.name} reads a log in the directory of the job that created the savepoint; stop that "
            "job with `causal savepoint --stop` and then use --resume"
        )
    begins = read_beginning(where, savepoint, planned, config, allow_dropped)
    if keep_sinks:
        return replace(begins, name="")
    return replace(begins, name="", incarnation=1, stores={}, left={})


def begin_from(
    directory: JobDirectory, begins: Beginning, config: JobConfig, planned: Plan, blueprint: Blueprint
) -> None:
    """Begin a new job in `directory`, which is empty, from a savepoint.

    Raises:
        PipelineError: a store of the job cannot accept the job's rows.
    """
    if (begins.where / BEGAN).exists():  # from this file, a source computes which of its records are due
        shutil.copy(begins.where / BEGAN, directory.path / BEGAN)
    begin_with(directory, config, planned, blueprint, begins)


# Functions that several of the above functions use.


def read_saved(job: Path, task: Task, files: Files, epoch: int) -> Saved:
    """Return a task's snapshot, which consists of these files, as one of the given epoch.

    Raises:
        CorruptData: a file is damaged or missing.
    """
    files_parts = [read_parts(job / path, digest) for path, _, digest in files]
    cut = replace(Cut.unpack(files_parts[-1][0]), epoch=epoch)
    return Saved(task, cut, tuple(tuple(parts[1:]) for parts in files_parts))


def begin_with(
    directory: JobDirectory, config: JobConfig, planned: Plan, blueprint: Blueprint, begins: Beginning
) -> None:
    """Create the first snapshots of all tasks, and make the job begin from them."""
    job, epoch, incarnation = directory.path, begins.epoch, begins.incarnation
    stores = open_stores(job, config, planned, begins)
    cuts = begins.rescaling.cuts(stores)
    fresh: dict[str, Files] = {}
    for task, parts in begins.chains.items():
        path = first_name(task, epoch, incarnation, bool(config.store))
        size, digest = write_parts(job / path, [cuts[task].pack(), *parts], durable=True)
        fresh[task] = ((path, size, digest),)
    upload(job, config, fresh.values())
    prepare(job, config, blueprint, begins, fresh, stores, journaled(job))
    directory.change()


def check_stores(directory: JobDirectory, config: JobConfig, planned: Plan) -> None:
    """Check the stores of a job that continues unchanged: they must exist, and no other job may have written to them.

    Raises:
        PipelineError: the file or directory of a sink that has rows is missing, or another job has written to a store
        since this job stopped at a savepoint, for example a job that began from the savepoint with `--keep-sinks`.
    """
    stores_there.check_resumed(directory.path, config, planned)
    if directory.stopped() and not config.listen:
        _check_unwritten(directory.path, config, planned)


def _check_unwritten(job: Path, config: JobConfig, planned: Plan) -> None:
    """Check the writers and positions of the stores of a job that stopped at a savepoint.

    Any other problem with a store is left to the task that writes to it, which also waits if the store is unavailable.
    """
    newest = newest_manifest(job)
    if newest is None:
        return
    topology = Blueprint.load(job).topology
    assignments = Assignments(topology)
    for record in journaled(job):
        assignments.apply(record)
    incarnations = {entry.name: entry.incarnation for entry in assignments.tasks.values()}
    try:
        with opened_stores(job, config, planned, incarnations) as stores:
            rows = {name: state.next for name, (store, state) in stores.items() if not isinstance(store, StagingStore)}
    except PipelineError:
        raise
    except CausalError:
        return
    for name, (covered, _) in savepoint_store.stood(job, topology, newest[1]).items():
        if rows.get(name, 0) > covered:
            raise PipelineError(
                f"the store of {name} has {rows[name]} rows, but had {covered} at the savepoint: a job has "
                "written to it since"
            )


@contextmanager
def opened_stores(
    job: Path,
    config: JobConfig,
    planned: Plan,
    incarnations: int | Mapping[str, int],
    only: Collection[str] | None = None,
) -> Iterator[dict[str, tuple[SinkStore, StoreState]]]:
    """Open all stores of a plan, and yield them with their states; opening changes only the right to write to them.

    Args:
        incarnations: the incarnation of each task, or a single one for all tasks.
        only: the accounts to open; by default, all.
    """
    stores: dict[str, tuple[SinkStore, StoreState]] = {}
    opened: list[SinkStore] = []
    try:
        for channel in planned.topology.channels:
            if channel.target != OUTSIDE:
                continue
            task, name = planned.topology.tasks[channel.source].name, planned.topology.account(channel)
            if only is not None and name not in only:
                continue
            store = planned.store(channel, job)
            opened.append(store)
            try:
                incarnation = incarnations if isinstance(incarnations, int) else incarnations[task]
                stores[name] = store, store.open(name, config.run, incarnation)
            except Fenced as problem:
                raise PipelineError(f"{problem}: a job has written to it since the savepoint was made") from None
        yield stores
    finally:
        for store in opened:
            store.close()


def open_stores(job: Path, config: JobConfig, planned: Plan, begins: Beginning) -> dict[str, tuple[int, int]]:
    """Return the position at which each sink task begins, which follows its last row, including rows of earlier
    versions.

    The stores are truncated at the savepoint, so that nothing from the old graph is left.  They also receive a mark
    where the job begins to write, so that the job's rows can be withdrawn.
    """
    epoch, positions = begins.epoch, dict[str, tuple[int, int]]()
    topology = planned.topology
    # The store of requests is in the job directory and contains no rows, so a job in another directory begins a new
    # store.
    asking = requesting(topology)
    places = stores_there.check({name: rows for name, (rows, _) in begins.stores.items()}, config, planned)
    with opened_stores(job, config, planned, begins.incarnation) as stores:
        for name, (store, state) in stores.items():
            # Rows that the savepoint covers became visible before the job stopped; staged rows belong to an earlier
            # version.
            state = store.discard(epoch) if isinstance(store, StagingStore) else state
            if name in begins.stores and name not in asking and state.next != begins.stores[name][0]:
                where = f", {places[name]}," if name in places else ""
                raise PipelineError(
                    f"the store of {name}{where} has {state.next} rows, but had {begins.stores[name][0]} at the "
                    f"savepoint; restore it ({stores_there.RELATIVE}), {stores_there.RENAME}"
                )
            positions[name] = state.next, state.digest
        for name, (store, _) in stores.items():
            store.truncate(epoch)
            if begins.name and isinstance(store, WithdrawingStore) and not isinstance(store, StagingStore):
                next_, digest = positions[name]
                store.write(Bundle(next_, 0, b"", digest, epoch, begins.incarnation, (), depends=()))
    return positions


def prepare(
    job: Path,
    config: JobConfig,
    blueprint: Blueprint,
    begins: Beginning,
    files: Mapping[str, Files],
    stores: Stood,
    decided: Sequence[Record],
) -> None:
    """Write the files of the next version to `change/`, where they have no effect until the change is final.

    Args:
        files: the first snapshots of the tasks.
        decided: the decisions about the job so far.
    """
    prepared = job / CHANGE
    shutil.rmtree(prepared, ignore_errors=True)
    prepared.mkdir()
    with naming(prepared):
        config.save(prepared)
        blueprint.save(prepared)
    write_manifest(prepared, begins.epoch, files, sync=config.durability == "os")
    hosts = {record["host"]: record for record in decided if record["kind"] == "host_joined"}
    began = _began(decided) if config.listen else []
    journal = Journal(prepared)
    file_lists = {task: [list(file) for file in each] for task, each in files.items()}
    change_record: Record = {
        "kind": "changed",
        "incarnation": begins.incarnation,
        "savepoint": begins.name,
        "stores": {task: list(stood) for task, stood in stores.items()},
        "left": {task: list(stood) for task, stood in begins.left.items() if task not in stores},
    }
    journal.append(
        [
            change_record,
            *began,
            {"kind": "savepoint", "epoch": begins.epoch, "final": True},
            {"kind": "checkpoint", "count": 0, "epoch": begins.epoch, "files": file_lists, "took_ms": 0.0},
            *hosts.values(),  # host incarnations increase from version to version
        ]
    )
    journal.close()


def _began(decided: Iterable[Record]) -> list[Record]:
    """Return the decision that records when the job began to read; an empty list if it never began.

    The sources of a multi-host job receive this time from the supervisor and compute from it which records are due.
    """
    earliest: Record | None = None
    for record in decided:
        if record["kind"] == "first_record" and (earliest is None or record["at_ns"] < earliest["at_ns"]):
            earliest = record
        elif record["kind"] == "resumed" and earliest is not None and earliest["at_ns"] > record["at_ns"]:
            earliest = None  # the machine was restarted, which reset its clock
    return [earliest] if earliest is not None else []
