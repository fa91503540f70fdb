"""The state of an operator at an earlier epoch of a job: of a kept checkpoint, of a savepoint, or reached by a replay.

The job, its stores and its recording are not changed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from causal.config import JobConfig
from causal.snapshot_files import SnapshotFile
from causal.topology import Task
from deploy.replaying.replay_attempts import time_of
from deploy.savepoints.savepoint_store import Savepoint, kept
from operators.builder.loading import version_of_job
from operators.builder.pipeline import Pipeline
from operators.engine.plan import Plan, plan
from operators.queries.inspection import all_tasks, as_of, keys_as_of, owners
from operators.recordings.recording import Recording, open_recording, recording_of, shown_time
from operators.replay.exact import Replay
from standby.storage.manifest_files import manifest_of

Keys = tuple[set[Any], bool]
"""The keys for which a task has state, and whether these are all."""


class _Tasks(Protocol):
    """The state of the tasks of one version at a moment."""

    def state(self, task: Task, operator: str, key: Any) -> Mapping[str, object]: ...

    def keys(self, task: Task, operator: str) -> Keys: ...


class PastState:
    """The state of one operator at the barrier of an epoch.

    Attributes:
        keyed: whether the operator follows key_by.
        origin: where the state comes from, as shown to people.
    """

    def __init__(
        self,
        epoch: int,
        origin: str,
        operator: str,
        pipeline: Pipeline,
        plan: Plan,
        config: JobConfig,
        tasks: _Tasks,
    ) -> None:
        self.epoch = epoch
        self.origin = origin
        self._operator = operator
        self._pipeline = pipeline
        self._plan = plan
        self._key_groups = config.key_groups
        self._tasks = tasks
        all_tasks(self._pipeline, self._plan, operator)  # raises: there is no such operator
        self.keyed = self._plan.keyed(operator)

    def of_key(self, key: Any) -> list[tuple[str, Mapping[str, object]]]:
        """Return the tasks that may keep state for a key, and what they keep, by table."""
        tasks = owners(self._pipeline, self._plan, self._operator, key, self._key_groups)
        return [(task.name, self._tasks.state(task, self._operator, key)) for task in tasks]

    def keys(self) -> list[Keys]:
        """Return the keys in each of the operator's tasks."""
        tasks = all_tasks(self._pipeline, self._plan, self._operator)
        return [self._tasks.keys(task, self._operator) for task in tasks]


class _Stored:
    """The state in the files of a checkpoint."""

    def __init__(
        self, plan: Plan, config: JobConfig, files: Mapping[str, Sequence[SnapshotFile]], directory: Path
    ) -> None:
        self._plan = plan
        self._key_groups = config.key_groups
        self._files = files
        self._directory = directory

    def state(self, task: Task, operator: str, key: Any) -> Mapping[str, object]:
        return as_of(self._plan, task, self._of(task), self._directory, operator, key, self._key_groups)

    def keys(self, task: Task, operator: str) -> Keys:
        return keys_as_of(self._plan, task, self._of(task), self._directory, operator, self._key_groups)

    def _of(self, task: Task) -> Sequence[SnapshotFile]:
        return self._files.get(task.name, ())


class _Replayed:
    """The state that a replay has reached."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def state(self, task: Task, operator: str, key: Any) -> Mapping[str, object]:
        return self._replay.state(task.name, operator, key)

    def keys(self, task: Task, operator: str) -> Keys:
        return set(self._replay.chains[task.name].kept_keys(operator)), True


@contextmanager
def past_state(job: Path, operator: str, at: str) -> Iterator[PastState]:
    """Yield the state of an operator at an epoch, or at the last one that was complete at a time.

    Raises:
        PipelineError: nothing of that moment is kept or recorded, or there was no such operator; the line says what
            there is.
        CorruptData: the recording or the savepoint is damaged.
        ReplayDivergence: the recorded epochs cannot be performed again.
        Unavailable: the input cannot be read again, or the store of the recording does not answer.
    """
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="causal-state-")))
        at_ns = 0 if at.isdecimal() else time_of(at)
        recording = recording_of(job, scratch / "recording")
        savepoint = next((each for each in reversed(kept(job)) if at == str(each.epoch)), None)
        if savepoint is not None and (recording is None or savepoint.epoch not in recording.checkpoints()):
            yield _of_savepoint(savepoint, operator, stack)
            return
        recording = recording or open_recording(job)  # raises: there is none
        epoch = recording.epoch_at(at_ns) if at_ns else int(at)
        if epoch in recording.checkpoints():
            yield _kept(recording, operator, epoch, stack)
        else:
            yield _replayed(recording, job, operator, epoch, scratch, stack)


def _of_savepoint(savepoint: Savepoint, operator: str, stack: ExitStack) -> PastState:
    config = JobConfig.load(savepoint.where)
    files = manifest_of(savepoint.where, savepoint.epoch)
    return _stored(savepoint.epoch, f"savepoint {savepoint.name}", operator, config, files, savepoint.where, stack)


def _kept(recording: Recording, operator: str, epoch: int, stack: ExitStack) -> PastState:
    version = recording.version_from(epoch)
    recording.archive(version)
    origin = f"checkpoint {epoch} of the recording, {shown_time(recording.time_ns(epoch))}"
    files = recording.snapshot(epoch)
    return _stored(epoch, origin, operator, version.config, files, recording.directory, stack)


def _stored(
    epoch: int,
    origin: str,
    operator: str,
    config: JobConfig,
    files: Mapping[str, Sequence[SnapshotFile]],
    where: Path,
    stack: ExitStack,
) -> PastState:
    pipeline = stack.enter_context(version_of_job(where, config))
    planned = plan(pipeline, config)
    return PastState(epoch, origin, operator, pipeline, planned, config, _Stored(planned, config, files, where))


def _replayed(recording: Recording, job: Path, operator: str, epoch: int, scratch: Path, stack: ExitStack) -> PastState:
    at = shown_time(recording.time_ns(epoch))  # raises: the barrier is not recorded
    version, start = recording.version_at(epoch - 1), recording.start_of(epoch - 1)
    readers = scratch / "readers"
    readers.mkdir()
    replay = Replay(recording, job, epoch - 1, readers, [operator])
    stack.callback(replay.close)
    while replay.epoch < epoch:
        replay.perform_epoch()
    origin = f"epochs {start} to {epoch - 1}, replayed from checkpoint {start} of the recording, {at}"
    return PastState(epoch, origin, operator, replay.pipeline, replay.plan, version.config, _Replayed(replay))
