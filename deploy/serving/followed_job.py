"""Follows the complete checkpoints of a job and holds their state in memory, as a standby of all tasks would.

Nothing is asked of the job: its tasks may run, recover or have ended. A thread looks for the next checkpoint, and a
question waits only while that checkpoint's changes are added. States of earlier epochs are read when they are asked
for, and few of them are latest.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from causal.commands import Files
from causal.config import JobConfig
from causal.errors import CausalError, CorruptData, PipelineError, Unavailable
from causal.storage.objects import Missing
from deploy.jobs.lookup import running
from deploy.savepoints.savepoint_store import kept
from deploy.savepoints.stored_checkpoints import fetch
from deploy.serving.refused import CONFLICT, GONE, Refused
from operators.builder.loading import version_of_job
from operators.engine.plan import Plan, plan
from operators.queries.state_at import NEVER, Operators, StateAt
from operators.recordings.recording import RecordedVersion, Recording, recording_of
from standby.blueprint import FILE as GRAPH
from standby.blueprint import Blueprint
from standby.storage.manifest_files import epochs_in, manifest_of

LOOK_S = 0.05
"""The interval between looks for a new checkpoint."""
EARLIER_MAX = 2
"""The number of earlier epochs whose state is latest."""
AGAIN_S = 0.5
"""The interval after a look that failed."""
KEPT_SHOWN = 20
"""The number of latest epochs that a refusal names."""
TURN_S = 30.0
"""The time for which a question waits for its turn to read an earlier epoch."""

Stamp = tuple[tuple[int, int], ...]
Version = tuple[Stamp, JobConfig, Plan, Operators]


class FollowedJob:
    """The states of a job from which questions are answered; its methods may be called from several threads.

    Args:
        only: the operators whose state is held; all operators if it is empty.
    """

    def __init__(self, job: Path, only: Sequence[str] = ()) -> None:
        self.job = job
        self._only = tuple(only)
        self._lock = threading.Lock()
        self._reading_earlier = threading.Lock()
        self._closing = threading.Event()
        self._code = ExitStack()
        """The context in which the code of the current version can be called."""
        self._version: Version | None = None
        self._latest: StateAt | None = None
        self._epoch = NEVER
        """The epoch of the last checkpoint that was read, even if a later one could only be read in part."""
        self._earlier: OrderedDict[int, StateAt] = OrderedDict()
        self._problem = ""
        """The reason why the last look failed; empty if it did not."""
        self._scratch = tempfile.TemporaryDirectory(prefix="causal-serve-")
        """Receives files of a recording that is in a shared store."""
        self._thread = threading.Thread(target=self._follow, name="checkpoints", daemon=True)

    def start(self, read: bool = True) -> None:
        """Follow the job until `close`.

        Args:
            read: whether to read the last checkpoint, if there is one, before this returns.

        Raises:
            PipelineError: the job's code cannot be loaded, or an operator of `only` does not exist.
        """
        if read:
            self._look()
        self._thread.start()

    def close(self) -> None:
        """Stop following, and free all states."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._forget()
        self._code.close()
        self._scratch.cleanup()

    # Questions.

    @property
    def operators(self) -> Operators:
        """The operators of the job's current version."""
        if self._version is None:
            raise Unavailable(self._problem or f"the code of the job in {self.job} is being loaded; repeat the request")
        return self._version[3]

    def holds(self, epoch: int | None) -> bool:
        """Return whether `at` answers without reading files."""
        latest = self._latest
        return epoch is None or (latest is not None and latest.epoch == epoch) or epoch in self._earlier

    @contextmanager
    def at(self, epoch: int | None) -> Iterator[StateAt]:
        """Yield the state at an epoch, or at the last complete checkpoint; it does not change during the context.

        Raises:
            Refused: nothing of the epoch is kept, or other code wrote it.
            Unavailable: no checkpoint is complete yet, or it is still being read.
        """
        with self._lock:
            latest = self._latest
            if epoch is None or (latest is not None and latest.epoch == epoch):
                if latest is None or latest.epoch == NEVER:
                    raise Unavailable(self._lacking())
                yield latest
                return
        if epoch not in self._earlier:
            self._read_earlier(epoch)
        with self._lock:
            earlier = self._earlier.get(epoch)
            if earlier is None:
                raise Unavailable(f"other epochs are asked for as often as {epoch}; repeat the request")
            self._earlier.move_to_end(epoch)
            yield earlier

    def kept_epochs(self) -> dict[int, str]:
        """Return the epochs that can be asked for, each with the name of its savepoint; empty for a checkpoint."""
        named = {savepoint.epoch: savepoint.name for savepoint in kept(self.job)}
        recording = self._recording()
        recorded = [] if recording is None else recording.checkpoints()
        epochs = {epoch: "" for epoch in (*recorded, *epochs_in(self.job)) if epoch != NEVER}
        return dict(sorted({**epochs, **named}.items()))

    def _lacking(self) -> str:
        if self._problem:
            return self._problem
        if self._latest is not None:
            return "the checkpoint is being read; repeat the request in a moment"
        if not running(self.job):
            return f"the job in {self.job} is not running, and none of its checkpoints was complete when the job ended"
        return f"no checkpoint of the job in {self.job} is complete yet; repeat the request, or use as_of=live"

    # Earlier epochs.

    def _read_earlier(self, epoch: int) -> None:
        if not self._reading_earlier.acquire(timeout=TURN_S):
            raise Unavailable("another epoch is being read; repeat the request in a moment")
        try:
            if epoch in self._earlier:
                return
            state = self._of_epoch(epoch)
            with self._lock:
                self._earlier[epoch] = state
                over = self._earlier.popitem(last=False)[1] if len(self._earlier) > EARLIER_MAX else None
                if over is not None:
                    over.release()
        finally:
            self._reading_earlier.release()

    def _of_epoch(self, epoch: int) -> StateAt:
        places = [each.where for each in kept(self.job) if each.epoch == epoch]
        for where in (self.job, *places):
            if epoch not in epochs_in(where):
                continue
            _, config, planned, operators = self._loaded(where)
            try:
                files = manifest_of(where, epoch)
                _check_tasks(planned, files)
                if where == self.job:
                    fetch(self.job, files.values(), config)
                state = StateAt(operators, planned, where, self._only)
                state.advance(epoch, files, {})
                return state
            except CorruptData:
                if where != self.job or epoch in epochs_in(where):
                    raise  # otherwise, a later checkpoint has replaced this one while it was read
        recorded = self._of_recording(epoch)
        if recorded is not None:
            return recorded
        epochs = list(self.kept_epochs())
        known = ", ".join(map(str, epochs[-KEPT_SHOWN:])) or "none"
        earlier = f"; GET /state lists {len(epochs) - KEPT_SHOWN} earlier ones" if len(epochs) > KEPT_SHOWN else ""
        raise Refused(GONE, f"nothing is kept of epoch {epoch}; the epochs that are kept are {known}{earlier}")

    def _recording(self) -> Recording | None:
        """Return the job's recording as it is now; None if it has none."""
        return recording_of(self.job, Path(self._scratch.name))

    def _of_recording(self, epoch: int) -> StateAt | None:
        """Return the state at a kept checkpoint of the recording; None if there is none of that epoch."""
        recording = self._recording()
        if recording is None or epoch not in recording.checkpoints():
            return None
        version, (_, config, planned, operators) = recording.version_from(epoch), self._loaded(self.job)
        if not _same_version(version, config, planned):
            raise Refused(
                CONFLICT,
                f"version {version.number} of the job wrote checkpoint {epoch}; ask for it with: causal state "
                f"{config.name} OPERATOR KEY --at {epoch}",
            )
        try:
            state = StateAt(operators, planned, recording.directory, self._only)
            state.advance(epoch, {task: tuple(each) for task, each in recording.snapshot(epoch).items()}, {})
            return state
        except (CorruptData, Missing):
            recording.reload()
            if epoch in recording.checkpoints():
                raise
            return None  # it has left the window of the recording while it was read

    def _loaded(self, where: Path) -> Version:
        """Return the current version, whose code and tasks must be those of the checkpoint in `where`."""
        if self._version is None:
            raise Unavailable(self._problem or "the code of the job is being loaded; repeat the request")
        config = self._version[1]
        if where != self.job:
            other = JobConfig.load(where)
            if other.code != config.code or Blueprint.load(where).topology != Blueprint.load(self.job).topology:
                raise Refused(
                    CONFLICT,
                    f"another version of the job wrote this savepoint; ask it with: causal serve --state-dir {where}",
                )
        return self._version

    # The last checkpoint.

    def _follow(self) -> None:
        while not self._closing.wait(AGAIN_S if self._problem else LOOK_S):
            try:
                self._look()
                self._problem = ""
            except (CausalError, OSError) as problem:  # shown to those who ask, until a later look succeeds
                self._problem = " ".join(str(problem).split())

    def _look(self) -> None:
        """Move to the newest complete checkpoint, if there is one that is not latest."""
        stamp = self._stamp()
        version = self._version
        if version is None or version[0] != stamp:
            version = self._load_version(stamp)
        epochs = epochs_in(self.job)
        if not epochs or (max(epochs) == self._epoch and self._holds_last()):
            return
        epoch = max(epochs)
        try:
            self._move(epoch, manifest_of(self.job, epoch), version)
        except CorruptData:
            if epoch in epochs_in(self.job):
                raise  # otherwise, the next look finds the checkpoint that has replaced this one

    def _holds_last(self) -> bool:
        return self._latest is not None and self._latest.epoch != NEVER

    def _move(self, epoch: int, files: Mapping[str, Files], version: Version) -> None:
        _, config, planned, operators = version
        _check_tasks(planned, files)
        fetch(self.job, files.values(), config)
        latest = self._latest
        if latest is None or latest.epoch == NEVER or epoch <= self._epoch:
            state = StateAt(operators, planned, self.job, self._only)
            state.advance(epoch, files, {})
            with self._lock:
                replaced = [latest, *self._earlier.values()]
                self._latest = state
                self._earlier.clear()  # after a rollback, an epoch is another one
                _release(replaced)
        else:
            fresh = latest.prepared(files)
            with self._lock:
                latest.advance(epoch, files, fresh)
        self._epoch = epoch

    def _load_version(self, stamp: Stamp) -> Version:
        """Load the code of the job, and forget the states that other code has read."""
        config = JobConfig.load(self.job)
        fetch(self.job, (), config)
        self._forget()
        self._code.close()
        pipeline = self._code.enter_context(version_of_job(self.job, config))
        planned = plan(pipeline, config)
        operators = Operators(pipeline, planned, config.key_groups)
        for operator in self._only:
            operators.tasks(operator)
        self._version = stamp, config, planned, operators
        return self._version

    def _forget(self) -> None:
        with self._lock:
            states = [self._latest, *self._earlier.values()]
            self._version, self._latest, self._epoch = None, None, NEVER
            self._earlier.clear()
            _release(states)

    def _stamp(self) -> Stamp:
        """Return what changes when another version of the job begins."""
        try:
            statuses = [os.stat(self.job / name) for name in ("job.json", GRAPH)]
        except FileNotFoundError:
            raise PipelineError(f"{self.job} no longer contains a job") from None
        return tuple((status.st_mtime_ns, status.st_ino) for status in statuses)


def _check_tasks(planned: Plan, files: Mapping[str, Files]) -> None:
    """Refuse a checkpoint of other tasks, which a version of the job leaves until the next one completes its first."""
    if any(task.name not in files for task in planned.topology.tasks):
        raise Unavailable("the job has changed to another version, whose first checkpoint is not complete yet")


def _same_version(recorded: RecordedVersion, config: JobConfig, planned: Plan) -> bool:
    """Return whether a recorded version has the code, the settings and the tasks of the job's current version."""
    before = recorded.config
    return (
        (before.code, dict(before.settings), before.processes) == (config.code, dict(config.settings), config.processes)
        and list(recorded.tasks) == [task.name for task in planned.topology.tasks]
    )  # fmt: skip


def _release(states: Iterable[StateAt | None]) -> None:
    for state in states:
        if state is not None:
            state.release()
