"""A kept checkpoint of a recording as the beginning of something else: a comparison, or a job of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from causal.config import JobConfig
from causal.cut import Cut, Mark
from causal.errors import CorruptData, PipelineError
from causal.ids import OUTSIDE
from causal.recorded_files import EpochLog
from deploy.savepoints.upgrading import read_saved
from operators.builder.loading import version_of_job
from operators.engine.plan import Plan, plan
from operators.recordings.recording import RecordedVersion, Recording
from operators.replay.input_steps import Positions, positions_in
from operators.replay.performance import Checkpoint
from operators.replay.recorded_steps import partitions_of
from operators.runtime.regrouping import Saved


def checkpoint_in(recording: Recording, version: RecordedVersion, epoch: int) -> tuple[Checkpoint, tuple[str, ...]]:
    """Return a kept checkpoint, with which a version began or which it wrote, and the names of the version's sources.

    Raises:
        PipelineError: the checkpoint lacks a task of the version.
        CorruptData: a file of the recording is damaged.
    """
    config, where = version.config, recording.directory
    recording.archive(version)
    files = recording.snapshot(epoch)
    with version_of_job(where, config) as pipeline:
        planned = plan(pipeline, config)
        topology = planned.topology
        if missing := [str(task.name) for task in topology.tasks if task.name not in files]:
            raise PipelineError(f"checkpoint {epoch} of the recording lacks {missing[0]}; begin at a later one")
        saved = [
            read_saved(where, task, tuple(files[task.name]), epoch)
            if files[task.name]
            else initial(planned, task.index)
            for task in topology.tasks
        ]
        return Checkpoint(epoch, topology, saved, lambda: _written(where, config)), planned.sources


def initial(planned: Plan, index: int) -> Saved:
    """Return the first state of a task, from which a job begins without files."""
    topology = planned.topology
    task = topology.tasks[index]
    job = planned.chain(index).snapshot(full=True)
    while not job.step(1_000):
        pass
    inputs: dict[int, tuple[int, int, bool]] = {channel.id: (0, 0, False) for channel in topology.inputs(task.index)}
    outputs: dict[int, tuple[int, int]] = {channel.id: (0, 0) for channel in topology.outputs(task.index)}
    return Saved(task, Cut(0, inputs, outputs), (tuple(bytes(part) for part in job.parts()),))


@contextmanager
def _written(where: Path, config: JobConfig) -> Iterator[Plan]:
    """Yield the plan of the recorded version; its code can be called until the context ends."""
    with version_of_job(where, config) as pipeline:
        yield plan(pipeline, config)


def positions_after(recording: Recording, epoch: int) -> Positions:
    """Return the positions of all partitions that were read by the end of a recorded epoch.

    Raises:
        PipelineError: the epoch is not recorded.
        CorruptData: a log is damaged, or ends before its barrier.
    """
    version = recording.version_at(epoch)
    recording.archive(version)
    with version_of_job(recording.directory, version.config) as pipeline:
        topology = plan(pipeline, version.config).topology
    cuts = {task: reached(task, epoch, recording.log(task, epoch)) for task in partitions_of(topology)}
    return positions_in(topology, cuts)


def reached(task: str, epoch: int, log: EpochLog) -> Cut:
    """Return the cut of a task at the end of an epoch.

    Raises:
        CorruptData: the log ends before its barrier.
    """
    if log.reached is None:
        raise CorruptData(
            f"the recorded log of {task} in epoch {epoch} ends before its barrier; begin or end elsewhere"
        )
    return log.reached


def positions_of(checkpoint: Checkpoint) -> Positions:
    """Return the positions of all partitions at a checkpoint."""
    return positions_in(checkpoint.topology, {each.task.name: each.cut for each in checkpoint.saved})


def marks_of(checkpoint: Checkpoint) -> Mapping[tuple[str, int], Mark]:
    """Return the marks of partitions at a checkpoint, for those that have one."""
    topology = checkpoint.topology
    saved = {each.task.index: each.cut for each in checkpoint.saved}
    return {
        (topology.subtasks.tasks[topology.subtask_channel(channel).target].operators[0], channel.partition): mark
        for channel in topology.channels
        if channel.source == OUTSIDE and (mark := saved[channel.target].places.get(channel.id)) is not None
    }
