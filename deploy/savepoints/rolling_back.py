"""Rolls a job back to one of its kept savepoints, into the same sinks, at any later time.

The order of the steps, each of which can be repeated by the same command after an interruption (0038):

1. The savepoint's state is read for the version that resumes, the sources are asked whether they still have the input,
   and all stores that have rows since the savepoint are opened and asked whether they can withdraw them.  A refusal
   has no effect.
2. The intent is stored in the job directory (`ROLLBACK`).  From then on, the job can be resumed only with this
   rollback.  The savepoints made since the target are marked, because their rows are withdrawn.
3. Each store returns to its position in one step of its own, and the ingest logs return to theirs (0043).
4. The version begins with the savepoint's state as after an upgrade, which removes the intent in the same change.

The version begins with an epoch that is higher than any that the job has used, so that no file, row or savepoint of the
withdrawn time can be mistaken for one of the new time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from causal.config import JobConfig
from causal.errors import CausalError, CorruptData, PipelineError
from causal.ports import ReturningStore, SinkStore, StagingStore, StoreState
from causal.sealed import seal, unseal
from causal.storage.files import naming, sync_directory
from deploy.jobs.jobdirectory import SAVEPOINTS, JobDirectory
from deploy.savepoints import recorded_input, savepoint_store
from deploy.savepoints.savepoint_store import Savepoint, left_behind
from deploy.savepoints.stored_checkpoints import check_unbound
from deploy.savepoints.upgrading import (
    begin_with,
    opened_stores,
    read_beginning,
    requesting,
    upgrade_in,
    written_by,
)
from operators.builder.loading import freeze
from operators.code_archive.archive import Archive, changed
from operators.engine.plan import Plan
from operators.sinks.contract.refusals import obstacle
from standby.blueprint import Blueprint
from standby.storage.change_files import ROLLBACK
from standby.storage.journal import journaled
from standby.storage.manifest_files import newest_manifest
from standby.supervision.assignments import Assignments
from standby.supervision.savepoints import finished, withdraws

Stood = tuple[int, int]
"""(rows, digest) of a store."""
Opened = Mapping[str, tuple[SinkStore, StoreState, Stood]]
"""Account → its open store, the store's state, and the position to which it returns."""


@dataclass(frozen=True, slots=True)
class Return:
    """A return of a job to a savepoint; reading it changes nothing.

    Attributes:
        epoch: the first epoch of the version that resumes, which the job has never used.
        incarnation: the first incarnation of its tasks.
        over: whether the job has finished, so that its stores accept no rows before they have returned.
        left: the positions of stores to which earlier versions wrote, and the current one does not.
        withdrawn: the number of rows that an interrupted attempt was about to withdraw; None without one.
    """

    savepoint: Savepoint
    epoch: int
    incarnation: int
    over: bool
    left: Mapping[str, Stood]
    withdrawn: int | None


def to_roll_back(job: Path, name: str = "") -> Return:
    """Return the rollback of a job to the savepoint with this name.

    Args:
        name: by default, the savepoint with which the current version began.

    Raises:
        PipelineError: there is no such savepoint, or the job's rows do not continue from it.
    """
    records, config = journaled(job), JobConfig.load(job)
    interrupted = interrupted_return(job)
    upgrade = upgrade_in(records)
    if interrupted is not None and name not in ("", interrupted.savepoint):
        check_complete(job)
    if not name and interrupted is not None:
        name = interrupted.savepoint
    if not name and upgrade is None:
        names = ", ".join(each.name for each in savepoint_store.kept(job) if reaches(each, config))
        raise PipelineError(
            f"the job in {job} runs the version that it started with, so --rollback needs the name of a savepoint; "
            + (f"there are {names}" if names else "it has none to which it can return")
        )
    savepoint = savepoint_store.named(job, name or (upgrade.savepoint if upgrade is not None else ""))
    if not reaches(savepoint, config):
        why = "has been rolled back beyond" if savepoint.withdrawn else "is another job than that of"
        raise PipelineError(
            f"the job in {job} {why} savepoint {savepoint.name}, so its rows do not continue from it; begin a new job "
            f"with it: {savepoint.command}"
        )
    assignments = Assignments(Blueprint.load(job).topology)
    for record in records:
        assignments.apply(record)
    incarnation = 1 + assignments.incarnation_max
    used = [int(record["epoch"]) for record in records if record["kind"] in ("checkpoint", "savepoint")]
    newest = newest_manifest(job)
    epoch = 1 + max(savepoint.epoch, newest[0] if newest is not None else 0, *used)
    if interrupted is not None:
        epoch = max(epoch, interrupted.epoch)  # stores may have forgotten what is before it
    withdrawn = None if interrupted is None else interrupted.rows
    left = left_behind(records)
    return Return(savepoint, epoch, max(incarnation, savepoint.incarnation), finished(records), left, withdrawn)


def reaches(savepoint: Savepoint, config: JobConfig) -> bool:
    """Return whether the rows of a job's stores continue those of a savepoint in the job's directory."""
    return not savepoint.withdrawn and JobConfig.load(savepoint.where).run == config.run


def made_by(job: Path, path: Path, config: JobConfig) -> str | None:
    """Return the name of the last savepoint that the code in a file made before the job ran other code; None if the
    file has the job's current code, or code that the job has not run.

    Args:
        config: the settings with which the file is loaded.

    Raises:
        PipelineError: the file cannot be loaded.
    """
    before = JobConfig.load(job)
    savepoints = [each for each in savepoint_store.kept(job) if reaches(each, before)]
    if not savepoints:
        return None
    _, now = freeze(path, dict(config.settings))
    if not changed(Archive.load(job, before.code), now):
        return None
    return next((each.name for each in reversed(savepoints) if not changed(_code_of(each), now)), None)


def _code_of(savepoint: Savepoint) -> Archive:
    return Archive.load(savepoint.where, JobConfig.load(savepoint.where).code)


def since(job: Path, savepoint: Savepoint) -> list[Savepoint]:
    """Return the savepoints that the job has made since the given one, oldest first.

    Epochs only rise, even when a job is rolled back.
    """
    run = JobConfig.load(job).run
    later = [each for each in savepoint_store.kept(job) if each.epoch > savepoint.epoch]
    return sorted([each for each in later if JobConfig.load(each.where).run == run], key=lambda each: each.epoch)


def check_complete(job: Path) -> None:
    """Raise `PipelineError` if a rollback of the job was interrupted, so that it must be completed first."""
    interrupted = interrupted_return(job)
    if interrupted is not None:
        raise PipelineError(
            f"the rollback of the job in {job} to savepoint {interrupted.savepoint} was interrupted while it withdrew "
            f"rows; complete it with --resume --rollback {interrupted.savepoint}"
        )
    elsewhere = withdraws(journaled(job)) if JobConfig.load(job).listen else ""
    if elsewhere and not (job / SAVEPOINTS / elsewhere).exists():
        raise PipelineError(
            f"the rollback of the job in {job} to savepoint {elsewhere} was interrupted while it withdrew rows; "
            f"complete it with --resume --rollback {elsewhere} on the machine that has this savepoint"
        )


def roll_back(
    directory: JobDirectory,
    config: JobConfig,
    planned: Plan,
    blueprint: Blueprint,
    written: Plan,
    back: Return,
    allow_dropped: bool,
) -> int:
    """Restart the job from a savepoint, without the rows that it has written since; return how many there were.

    Args:
        planned: the version that resumes, which is that of the savepoint or another one.
        written: the current version.

    Raises:
        PipelineError: the version cannot begin with the savepoint, or a store or a source cannot return to it; nothing
            has been changed.
    """
    job, savepoint = directory.path, back.savepoint
    check_unbound(config, written)
    begins = read_beginning(savepoint.where, savepoint, planned, config, allow_dropped, back.epoch)
    planned.check_readable(begins.rescaling.places(), job)
    withdrawn = withdraw(job, written, back)
    return_input(job, savepoint, begins.rescaling.positions())
    begin_with(directory, config, planned, blueprint, replace(begins, incarnation=back.incarnation))
    return withdrawn


def withdraw(job: Path, written: Plan, back: Return, before: Callable[[], None] = lambda: None) -> int:
    """Withdraw the rows that were written since a savepoint, one store after the other; return how many there were.

    Args:
        written: the current version.
        before: a function that is called after all checks, before anything is changed.

    Raises:
        PipelineError: a store cannot return to its position; nothing has been changed.
    """
    with _returning(job, JobConfig.load(job), written, back) as stores:
        rows = _check(stores, back)
        withdrawn = rows if back.withdrawn is None else back.withdrawn
        before()
        _note(job, back, withdrawn)
        for store, _, stood in stores.values():
            if isinstance(store, ReturningStore):
                store.return_to(*stood)
    return withdrawn


def return_input(job: Path, savepoint: Savepoint, positions: recorded_input.Positions) -> None:
    """Make the sources read again from the positions of a savepoint; the savepoints made since need no input."""
    recorded_input.return_to(job, positions)
    for each in since(job, savepoint):
        recorded_input.forget(job, {each.name}, Blueprint.load(each.where).topology)


@contextmanager
def _returning(job: Path, config: JobConfig, written: Plan, back: Return) -> Iterator[Opened]:
    """Open the stores of rows that are not at their positions of the savepoint, and yield them with their states.

    These are the stores of the current version and those to which only versions since the savepoint have written.
    """
    with ExitStack() as stack:
        opened = stack.enter_context(opened_stores(job, config, written, back.incarnation))
        asking = requesting(written.topology)
        # Requests are not withdrawn, but more of them may follow although the job had finished.
        known = {
            name: (store, state, (state.next, state.digest) if name in asking else back.savepoint.stood(name))
            for name, (store, state) in opened.items()
        }
        lacking = {name for name, (rows, _) in back.left.items() if rows != back.savepoint.stood(name)[0]} - set(known)
        for each in reversed(since(job, back.savepoint)):
            if lacking & set(each.stores):
                plan = stack.enter_context(written_by(each.where))
                stores = stack.enter_context(opened_stores(job, config, plan, back.incarnation, lacking))
                known |= {name: (store, state, back.savepoint.stood(name)) for name, (store, state) in stores.items()}
                lacking -= set(stores)
        if lacking:
            raise PipelineError(
                f"the store of {min(lacking)} has rows that were written since savepoint {back.savepoint.name}, but "
                "the savepoint of the version that wrote them was deleted; begin a new job instead: "
                f"{back.savepoint.command}"
            )
        yield {
            name: (store, state, stood)
            for name, (store, state, stood) in known.items()
            if back.over or state.next != stood[0] or isinstance(store, StagingStore)  # staged rows are discarded
        }


def _visible(store: SinkStore, state: StoreState) -> int:
    """Return the number of rows of a store that readers can see."""
    return state.next - (store.staged()[0] if isinstance(store, StagingStore) else 0)


def _check(stores: Opened, back: Return) -> int:
    """Return how many rows all stores will withdraw.

    Raises:
        PipelineError: a store cannot return to its position at the savepoint.
    """
    withdrawn = 0
    for name, (store, state, (rows, _)) in stores.items():
        visible = _visible(store, state)
        if visible < rows:
            raise PipelineError(
                f"the store of {name} has {visible:,} rows, but had {rows:,} at savepoint {back.savepoint.name}; "
                "restore it"
            )
        withdrawn += visible - rows
        if visible == rows and not back.over:
            continue
        if reason := obstacle(store, rows):
            raise PipelineError(
                f"the store of {name} {reason}, and {visible - rows:,} were written since savepoint "
                f"{back.savepoint.name}; begin another job instead: {back.savepoint.command}"
            )
    return withdrawn


# The intent.


@dataclass(frozen=True, slots=True)
class InterruptedReturn:
    """A return to a savepoint that was interrupted while it withdrew rows.

    Attributes:
        rows: the number of rows that it was about to withdraw.
        epoch: the first epoch of the version that was to resume.
    """

    savepoint: str
    rows: int
    epoch: int


def _note(job: Path, back: Return, rows: int) -> None:
    """Store durably that the job is returning to a savepoint, and which savepoints are withdrawn by this."""
    fresh = job / f"{ROLLBACK}.new"
    with naming(fresh), open(fresh, "w") as file:
        file.write(seal({"savepoint": back.savepoint.name, "rows": rows, "epoch": back.epoch}))
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, job / ROLLBACK)
    sync_directory(job)
    for each in since(job, back.savepoint):
        each.note_withdrawn()


def interrupted_return(job: Path) -> InterruptedReturn | None:
    """Return the rollback of a job that was interrupted while it withdrew rows; None if there is none."""
    try:
        content = unseal((job / ROLLBACK).read_text())
        return InterruptedReturn(str(content["savepoint"]), int(content["rows"]), int(content.get("epoch", 0)))
    except FileNotFoundError:
        return None
    except (CausalError, OSError, ValueError, KeyError, TypeError) as problem:
        raise CorruptData(f"{job / ROLLBACK} is damaged ({problem}); restore it from a copy") from None
