"""The next version of a running job: its processes start and load their state before the current version ends (0040).

The order of the steps, and what an interruption after each of them leaves, is that of the table in design 0040.  Until
the supervisor commits the change, an interruption leaves the current version at work.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from causal.commands import Files
from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import CorruptData, PipelineError, Unavailable
from causal.ids import OUTSIDE
from causal.storage.files import write_parts
from deploy.changes.conversation import Conversation
from deploy.jobs.jobdirectory import SAVEPOINTS
from deploy.savepoints import savepoint_store
from deploy.savepoints.rolling_back import Return, withdraw
from deploy.savepoints.savepoint_store import Savepoint
from deploy.savepoints.stored_checkpoints import first_name
from deploy.savepoints.upgrading import Beginning, Stood, open_stores, prepare, read_beginning, read_saved, written_by
from operators.code_archive.archive import Archive
from operators.engine.plan import Plan
from operators.runtime.rescaling import Rescaling
from standby.blueprint import Blueprint
from standby.storage.change_files import CHANGE, NEXT
from standby.storage.manifest_files import newest_manifest
from standby.supervision.next_version import CANCEL, COMMIT, FACTS, FOLLOW, PREPARE, STAND, WITHDRAW

READY_S, LOADED_S, STANDS_S, ANSWER_S = 60.0, 600.0, 60.0, 10.0
"""The time that the processes have to start and to load, the current version to end, and the supervisor to answer."""

LATER = 1000
"""The number by which the first incarnation of the next version, and the first epoch after a rollback, exceed the
latest ones, because the current version continues meanwhile."""


@dataclass(frozen=True, slots=True)
class Version:
    """The version to which a job changes."""

    config: JobConfig
    planned: Plan
    blueprint: Blueprint
    archive: Archive
    allow_dropped: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    """A change that has been carried out.

    Attributes:
        gap_s: the time from the end of the current version to the commit of the next one.
        withdrawn: the number of rows that were withdrawn.
        savepoint: the savepoint at which the previous version ended; empty after a rollback.
    """

    gap_s: float
    withdrawn: int = 0
    savepoint: str = ""


@dataclass(frozen=True, slots=True)
class _Facts:
    """The supervisor's report about the current version."""

    epoch: int
    incarnation: int
    savepoint: str
    left: Stood


def facts_of(conversation: Conversation) -> _Facts:
    """Return the supervisor's report about the current version, if that version can change now.

    Raises:
        PipelineError: it cannot.
        Unavailable: the supervisor does not answer.
    """
    answer = conversation.ask(FACTS, ANSWER_S)
    left = savepoint_store.positions(answer["left"])
    return _Facts(int(answer["epoch"]), int(answer["incarnation"]), str(answer["savepoint"]), left)


def upgrade(job: Path, version: Version, conversation: Conversation) -> Changed:
    """Replace the current version of a running job by another one, at a final savepoint of the current version.

    Raises:
        PipelineError: the job cannot change to this version; nothing has been changed.
        Unavailable: the supervisor, a store or the disk is unavailable; the current version continues.
    """
    facts = facts_of(conversation)
    incarnation = facts.incarnation + LATER
    version = _numbered(job, version, incarnation)
    with _Attempt(job, version, conversation) as attempt:
        attempt.prepare("", incarnation)
        current = _Current(job)
        epoch, files, begins = current.checkpoint(version, incarnation)
        stores = savepoint_store.stood(job, current.blueprint.topology, files)
        first = attempt.write(begins, _positions(version.planned, stores))
        attempt.follow(epoch, first)
        answer = conversation.ask(STAND, STANDS_S)
        began_s = time.monotonic()
        if int(answer["incarnation"]) >= incarnation:
            raise Unavailable(f"the tasks of {job} have failed {LATER} times meanwhile; repeat the command")
        saved = current.savepoint(facts, incarnation)
        begins = current.beginning(version, saved)
        stores = open_stores(job, version.config, version.planned, begins)
        last = attempt.write(begins, stores)
        prepare(job, version.config, version.blueprint, begins, last, stores, ())
        conversation.ask(COMMIT, ANSWER_S)
        gap_s = time.monotonic() - began_s
        attempt.committed = True
    return Changed(gap_s, savepoint=saved.name)


def roll_back(
    job: Path, version: Version, written: Plan, back: Savepoint, facts: _Facts, conversation: Conversation
) -> Changed:
    """Return a running job to a savepoint, and withdraw the rows that it has written since.

    Args:
        version: the version of the savepoint.
        written: the current version.

    Raises: as `upgrade`; after rows have been withdrawn, only the same rollback can continue the job.
    """
    incarnation, epoch = facts.incarnation + LATER, facts.epoch + LATER
    version = _numbered(job, version, incarnation)
    begins = read_beginning(back.where, back, version.planned, version.config, version.allow_dropped, epoch)
    begins = replace(begins, incarnation=incarnation)
    version.planned.check_readable(begins.rescaling.positions(), job)
    with _Attempt(job, version, conversation) as attempt:
        attempt.prepare(back.name, incarnation)
        files = attempt.write(begins, _positions(version.planned, back.stores))
        attempt.follow(epoch, files)
        answer = conversation.ask(STAND, STANDS_S)
        began_s = time.monotonic()
        if int(answer["epoch"]) >= epoch:
            raise Unavailable(f"the job in {job} has completed {LATER} checkpoints meanwhile; repeat the command")
        returned = Return(back, epoch, incarnation, False, facts.left, None)
        rows = withdraw(job, written, returned, lambda: _announced(conversation))
        stores = open_stores(job, version.config, version.planned, begins)
        prepare(job, version.config, version.blueprint, begins, files, stores, ())
        conversation.ask(COMMIT, ANSWER_S)
        gap_s = time.monotonic() - began_s
        attempt.committed = True
    return Changed(gap_s, rows)


def _announced(conversation: Conversation) -> None:
    conversation.ask(WITHDRAW, ANSWER_S)


def _numbered(job: Path, version: Version, incarnation: int) -> Version:
    """Return the version with the first incarnation of its tasks, once its code is archived in the job directory."""
    config = replace(version.config, first_incarnation=incarnation, code=version.archive.digest)
    version.archive.save(job, config.durability == "os")
    return replace(version, config=config)


def _positions(planned: Plan, stores: Stood) -> Stood:
    """Return the positions of all stores of a plan; stores that are new have no rows."""
    topology = planned.topology
    names = [topology.account(channel) for channel in topology.channels if channel.target == OUTSIDE]
    return {name: stores.get(name, (0, 0)) for name in names}


class _Attempt:
    """An attempt to change a job; as a context manager, it cancels what has not been committed.

    Attributes:
        committed: whether the supervisor has made the change final.
    """

    def __init__(self, job: Path, version: Version, conversation: Conversation) -> None:
        self._job = job
        self._version = version
        self._conversation = conversation
        self._written: list[Path] = []
        self.committed = False

    def __enter__(self) -> _Attempt:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if not self.committed:
            with suppress(PipelineError, Unavailable):  # the supervisor ends the change once the command is silent
                self._conversation.ask(CANCEL, ANSWER_S)
            shutil.rmtree(self._job / CHANGE, ignore_errors=True)
            for path in self._written:
                path.unlink(missing_ok=True)
        shutil.rmtree(self._job / NEXT, ignore_errors=True)

    def prepare(self, rollback: str, incarnation: int) -> None:
        """Start the processes of the next version.

        Args:
            rollback: the savepoint to which the job returns; empty for an upgrade.
        """
        settings = self._job / NEXT
        shutil.rmtree(settings, ignore_errors=True)
        settings.mkdir()
        self._version.config.save(settings)
        self._version.blueprint.save(settings)
        tasks = [task.name for task in self._version.planned.topology.tasks]
        self._conversation.ask(PREPARE, READY_S, tasks=tasks, rollback=rollback, incarnation=incarnation)

    def write(self, begins: Beginning, stores: Stood) -> dict[str, Files]:
        """Write a snapshot of each task, with these positions of the stores."""
        cuts: Mapping[str, Cut] = begins.rescaling.cuts(stores)
        files: dict[str, Files] = {}
        for task, parts in begins.chains.items():
            path = first_name(task, begins.epoch, begins.incarnation, shared=False)
            durable = self._version.config.durability == "os"
            size, digest = write_parts(self._job / path, [cuts[task].pack(), *parts], durable)
            self._written.append(self._job / path)
            files[task] = ((path, size, digest),)
        return files

    def follow(self, epoch: int, files: Mapping[str, Files]) -> None:
        """Make the processes load these snapshots."""
        lists = {task: [list(file) for file in each] for task, each in files.items()}
        self._conversation.ask(FOLLOW, LOADED_S, epoch=epoch, files=lists)


class _Current:
    """The current version of a job, as its directory shows it."""

    def __init__(self, job: Path) -> None:
        self._job = job
        self.config = JobConfig.load(job)
        self.blueprint = Blueprint.load(job)

    def checkpoint(self, version: Version, incarnation: int) -> tuple[int, Mapping[str, Files], Beginning]:
        """Return the latest checkpoint as (epoch, files, beginning of the next version).

        Raises:
            PipelineError: the version cannot begin with its state.
            CorruptData: a file is damaged.
        """
        manifest = newest_manifest(self._job)
        if manifest is None:
            raise PipelineError(f"the job in {self._job} has not completed a checkpoint yet; repeat the command later")
        epoch, files = manifest
        saved = [read_saved(self._job, task, files[task.name], epoch) for task in self.blueprint.topology.tasks]
        rescaling = Rescaling(
            self.blueprint.topology,
            saved,
            version.planned,
            version.config.key_groups,
            version.allow_dropped,
            lambda: written_by(self._job),
        )
        return epoch, files, Beginning(self._job, epoch, incarnation, rescaling, rescaling.chains(), {})

    def savepoint(self, facts: _Facts, incarnation: int) -> Savepoint:
        """Store the checkpoint at which the version has ended as a savepoint, to which a rollback can return."""
        manifest = newest_manifest(self._job)
        if manifest is None:
            raise CorruptData(f"{self._job} lacks the manifest of its last checkpoint")
        epoch, files = manifest
        name = f"{epoch}-{self.config.run[-6:]}"
        where = self._job / SAVEPOINTS / name
        saved = Savepoint(
            name, where, epoch, incarnation, savepoint_store.stood(self._job, self.blueprint.topology, files),
            time.time(), facts.left,
        )  # fmt: skip
        return savepoint_store.store(self._job, saved, files)

    def beginning(self, version: Version, saved: Savepoint) -> Beginning:
        """Return the savepoint at which the version has ended as the beginning of the next version."""
        return read_beginning(saved.where, saved, version.planned, version.config, version.allow_dropped)
