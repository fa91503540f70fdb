"""The next version of a running job: its processes start and load their state before the current version ends (0040).

The order of the steps, and what an interruption after each of them leaves, is that of the table in design 0040.  Until
the supervisor commits the change, an interruption leaves the current version at work.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import convert

from causal.config import JobConfig
from causal.errors import CorruptData, PipelineError, Unavailable
from causal.process.forks import close as close_lock
from causal.process.forks import keep_from_children, lock
from causal.snapshot_files import SNAPSHOT_SUFFIX, span_of
from causal.storage.files import naming
from causal.storage.shared import Depot
from causal.topology import Topology
from deploy.changes.conversation import Conversation
from deploy.changes.conversion import Conversion, Snapshots, Version
from deploy.hosts.host_commands import share
from deploy.jobs.hints import resume_command
from deploy.jobs.jobdirectory import SAVEPOINTS
from deploy.jobs.latest_view import latest
from deploy.jobs.lookup import running
from deploy.savepoints import savepoint_store
from deploy.savepoints.rolling_back import Return, return_input, withdraw
from deploy.savepoints.savepoint_store import Savepoint
from deploy.savepoints.stored_checkpoints import check_unbound, fetch, unload
from deploy.savepoints.upgrading import Beginning, Stood, open_stores, prepare, read_beginning, requesting
from operators.engine.plan import Plan
from standby.candidate.election import settings_of
from standby.leadership.term_journal import decided
from standby.network.control import Requester
from standby.storage.change_files import CHANGE, NEXT, WITHDRAWAL_LOCK
from standby.storage.manifest_files import DIRECTORY as CHECKPOINTS
from standby.storage.manifest_files import newest_manifest
from standby.storage.store_journal import perform
from standby.supervision.job_view import JobView
from standby.supervision.next_version import CANCEL, COMMIT, FACTS, FOLLOW, PREPARE, STAND, WITHDRAW

RUNS = ("running", "staged", "finished")
"""The states in which a task reports that it runs or has finished."""

RUNS_S, AGAIN_S, LOOK_S = 60.0, 1.0, 0.005
"""The time that the tasks of the next version have to run, and the intervals at which they are looked at."""

READY_S, LOADED_S, STANDS_S, ANSWER_S = 60.0, 600.0, 60.0, 10.0
"""The time that the processes have to start and to load, the current version to end, and the supervisor to answer."""

LATER = 1000
"""The number by which the first incarnation of the next version, and the first epoch after a rollback, exceed the
latest ones, because the current version continues meanwhile."""

LOADS_MAX = 4
"""The number of checkpoints that the processes load before the current version ends."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A change that has been carried out.

    Attributes:
        gap_s: the time from the end of the current version until every task of the next one was running.
        withdrawn: the number of rows that were withdrawn.
        savepoint: the savepoint at which the previous version ended; empty after a rollback.
        whole: the reason why the whole state was converted after the end of the previous version; empty if only the
            last changes were.
    """

    gap_s: float
    withdrawn: int = 0
    savepoint: str = ""
    whole: str = ""

    @property
    def took(self) -> str:
        """The time that the change took, as messages state it."""
        whole = f" (all state was converted after the end of the previous version: {self.whole})" if self.whole else ""
        return f"the change took {self.gap_s:.2f} s{whole}"


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
    check_unbound(version.config, version.planned)
    facts = facts_of(conversation)
    remove_leftovers(job, version.config, facts.epoch)
    incarnation = facts.incarnation + LATER
    version = _numbered(job, version, incarnation)
    conversion = Conversion(job, version, incarnation)
    with _Attempt(job, version, conversation, conversion.snapshots) as attempt:
        attempt.prepare("", incarnation)
        for _ in range(LOADS_MAX):
            if not conversion.advance():
                break
            attempt.follow(conversion.epoch)
        rescaling = conversion.rescaling
        answer = conversation.ask(STAND, STANDS_S)
        began_s = time.monotonic()
        if int(answer["incarnation"]) >= incarnation:
            raise Unavailable(f"the tasks of {job} have failed {LATER} times meanwhile; repeat the command")
        durable = version.config.durability == "os"
        saved = _savepoint(job, conversion.topology, facts.left, incarnation, durable)
        stood = {
            account: rows for account, rows in saved.stores.items() if account not in requesting(conversion.topology)
        }
        left = {**saved.left, **stood}
        begins = Beginning(saved.where, saved.epoch, incarnation, rescaling, {}, saved.stores, saved.name, left)
        stores = open_stores(job, version.config, version.planned, begins)
        conversion.advance(stores)
        prepare(job, version.config, version.blueprint, begins, conversion.snapshots.files, stores, ())
        attempt.commit()
    await_running(job)
    gap_s = time.monotonic() - began_s
    if not durable:
        saved.make_durable()
    return Changed(gap_s, savepoint=saved.name, whole=conversion.obstacle)


def remove_leftovers(job: Path, config: JobConfig, epoch: int) -> None:
    """Remove the snapshots of rollbacks whose command was killed, because no sweep reaches their epochs for long.

    Args:
        epoch: the last complete checkpoint of the job.

    Raises:
        Unavailable: the shared store is unavailable.
    """

    def is_left(path: str) -> bool:
        span = span_of(path)
        return span is not None and span.last > epoch + LATER // 2

    for path in (job / CHECKPOINTS).rglob(f"*{SNAPSHOT_SUFFIX}"):
        if is_left(path.name):
            path.unlink(missing_ok=True)
    if config.store:
        unload(config, filter(is_left, Depot(config.store, config.place_in_store, proof="").names(CHECKPOINTS)))


def await_running(job: Path) -> None:
    """Wait until every task of a job runs, or the job has ended.

    Raises:
        Unavailable: a task does not run in time, or the job has ended with an error.
    """
    runtime, deadline_s = (job / "runtime").read_text().strip(), time.monotonic() + RUNS_S
    requester = Requester(runtime, f"admin-{os.getpid()}-awaits")
    try:
        while time.monotonic() < deadline_s:
            answer = requester.ask("status", {}, AGAIN_S)
            view = None if answer is None or "view" not in answer else convert(answer["view"], JobView)
            if view is None and not running(job):
                view = latest(job)
            if view is None:
                continue
            if view.ended is not None and view.ended.status:
                raise Unavailable(
                    f"the job in {job} has ended since the change: {view.ended.reason}; return to the previous version "
                    f"with: {resume_command(job)} --rollback"
                )
            if view.ended is not None or all(task.state in RUNS for task in view.tasks):
                return
            time.sleep(LOOK_S)
    finally:
        requester.close()
    raise Unavailable(
        f"the job in {job} is changed, but not all of its tasks run after {RUNS_S:.0f} s; see `causal status`"
    )


def _savepoint(job: Path, topology: Topology, left: Stood, incarnation: int, durable: bool) -> Savepoint:
    """Store the checkpoint at which the current version has ended as a savepoint, to which a rollback can return."""
    newest = newest_manifest(job)
    if newest is None:
        raise CorruptData(f"{job} lacks the manifest of its last checkpoint")
    epoch, files = newest
    fetch(job, files.values())
    name = f"{epoch}-{JobConfig.load(job).run[-6:]}"
    stores = savepoint_store.stood(job, topology, files)
    saved = Savepoint(name, job / SAVEPOINTS / name, epoch, incarnation, stores, time.time(), left)
    return savepoint_store.store(job, saved, files, durable)


def roll_back(
    job: Path, version: Version, written: Plan, back: Savepoint, facts: _Facts, conversation: Conversation
) -> Changed:
    """Return a running job to a savepoint, and withdraw the rows that it has written since.

    Args:
        version: the version of the savepoint.
        written: the current version.

    Raises: as `upgrade`; after rows have been withdrawn, only the same rollback can continue the job.
    """
    remove_leftovers(job, version.config, facts.epoch)
    incarnation, epoch = facts.incarnation + LATER, facts.epoch + LATER
    version = _numbered(job, version, incarnation)
    begins = read_beginning(back.where, back, version.planned, version.config, version.allow_dropped, epoch)
    begins = replace(begins, incarnation=incarnation)
    check_unbound(version.config, written)
    version.planned.check_readable(begins.rescaling.places(), job)
    snapshots = Snapshots(job, version, incarnation)

    def write(stood: Stood) -> None:
        cuts = {task: cut.pack() for task, cut in begins.rescaling.cuts(stood).items()}
        snapshots.add(epoch, cuts, begins.chains, whole=True)

    # Requests are not withdrawn, so the cuts of their tasks are known only once the current version has ended.
    asks = bool(requesting(version.planned.topology))
    with _Attempt(job, version, conversation, snapshots) as attempt:
        attempt.prepare(back.name, incarnation)
        if not asks:
            write(version.positions(back.stores))
            attempt.follow(epoch)
        answer = conversation.ask(STAND, STANDS_S)
        began_s = time.monotonic()
        if int(answer["epoch"]) >= epoch:
            raise Unavailable(f"the job in {job} has completed {LATER} checkpoints meanwhile; repeat the command")
        returned = Return(back, epoch, incarnation, False, facts.left, None)
        version.planned.check_readable(begins.rescaling.places(), job)  # the current version may have released more
        with _not_resumed(job):
            rows = withdraw(job, written, returned, lambda: _announced(conversation))
            return_input(job, back, begins.rescaling.positions())
            stores = open_stores(job, version.config, version.planned, begins)
            if asks:
                write(stores)
            prepare(job, version.config, version.blueprint, begins, snapshots.files, stores, ())
            attempt.commit()
    await_running(job)
    gap_s = time.monotonic() - began_s
    return Changed(gap_s, rows)


@contextmanager
def _not_resumed(job: Path) -> Iterator[None]:
    """Keep a job that dies from being resumed until its rows are withdrawn, or this command has ended.

    A command that was suspended meanwhile would otherwise withdraw rows of a version that continues.

    Raises:
        Unavailable: the job is being resumed.
    """
    handle = keep_from_children(os.open(job / WITHDRAWAL_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        if not lock(handle, 0.0):
            raise Unavailable(f"the job in {job} has ended and is being resumed; repeat the command")
        yield
    finally:
        close_lock(handle)


def _announced(conversation: Conversation) -> None:
    conversation.ask(WITHDRAW, ANSWER_S)


def _numbered(job: Path, version: Version, incarnation: int) -> Version:
    """Return the version with the first incarnation of its tasks, once its code is archived in the job directory."""
    config = replace(version.config, first_incarnation=incarnation, code=version.archive.digest)
    with naming(job):
        version.archive.save(job, config.durability == "os")
    share(config, version.archive)
    return replace(version, config=config)


class _Attempt:
    """An attempt to change a job; as a context manager, it cancels what has not been committed."""

    def __init__(self, job: Path, version: Version, conversation: Conversation, snapshots: Snapshots) -> None:
        self._job = job
        self._version = version
        self._conversation = conversation
        self._snapshots = snapshots

    def __enter__(self) -> _Attempt:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if self._uncommitted() and self._cancelled() and self._uncommitted():
            shutil.rmtree(self._job / CHANGE, ignore_errors=True)
            self._snapshots.remove()
        shutil.rmtree(self._job / NEXT, ignore_errors=True)

    @property
    def _committed(self) -> bool:
        """Whether the job is the next version.

        Raises:
            Unavailable: the shared store is unavailable.
        """
        config, first = JobConfig.load(self._job), self._version.config.first_incarnation
        if config.listen and config.first_incarnation != first:  # another supervisor may lead the job now
            decisions = perform(decided(), Depot(config.store, config.place_in_store, proof=""))
            config = settings_of(decisions.job) if decisions.job else config
        return config.first_incarnation == first

    def _uncommitted(self) -> bool:
        """Return whether the job is known not to be the next version."""
        try:
            return not self._committed
        except Unavailable:
            return False

    def _cancelled(self) -> bool:
        """Cancel the change; return whether it can no longer be committed.

        Without an answer, the files stay: the supervisor may yet read the request to commit, or it ends the change
        because the command is silent, and removes the files with those of the next checkpoint.
        """
        try:
            self._conversation.ask(CANCEL, ANSWER_S)
        except PipelineError:
            return True  # the change has ended
        except Unavailable:
            return False
        return True

    def commit(self) -> None:
        """Make the change final.

        Raises:
            PipelineError: the supervisor has ended the change.
            Unavailable: it is not known whether the change is final.
        """
        try:
            self._conversation.ask(COMMIT, ANSWER_S)
        except PipelineError:
            if not self._committed:  # otherwise, the supervisor has answered a request that was repeated
                raise

    def prepare(self, rollback: str, incarnation: int) -> None:
        """Start the processes of the next version.

        Args:
            rollback: the savepoint to which the job returns; empty for an upgrade.
        """
        settings = self._job / NEXT
        shutil.rmtree(settings, ignore_errors=True)
        settings.mkdir()
        blueprint = self._version.blueprint
        with naming(settings):
            self._version.config.save(settings)
            blueprint.save(settings)
        tasks = [task.name for task in blueprint.topology.tasks]
        places = {task: [place.host, dict(place.labels)] for task, place in blueprint.constraints.items()}
        self._conversation.ask(PREPARE, READY_S, tasks=tasks, places=places, rollback=rollback, incarnation=incarnation)

    def follow(self, epoch: int) -> None:
        """Make the processes load the snapshots that have been written, which are those of a checkpoint."""
        lists = {task: [list(file) for file in each] for task, each in self._snapshots.files.items()}
        self._conversation.ask(FOLLOW, LOADED_S, epoch=epoch, files=lists)
