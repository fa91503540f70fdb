"""Adds the dead-letter task to a job that a failing record has stopped, at the job's last checkpoint.

This is the only change to a graph that needs no savepoint.  The new task is the last one and reads only elements that
are sent after the checkpoint, so all other tasks keep their numbers, state and logs.  A replay therefore performs the
same events.  The event of the record on which user code raised has produced no output yet, so that record becomes a
dead letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from causal.commands import Files
from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import invariant
from causal.ids import OUTSIDE
from causal.ports import StagingStore
from causal.storage.files import read_parts, write_parts
from causal.topology import Task
from deploy.savepoints.stored_checkpoints import check_unbound, fetch, first_name, upload
from operators.engine.plan import Plan
from operators.runtime.rescaling import whole
from standby.storage.journal import Journal
from standby.storage.manifests import newest_manifest, write_manifest
from standby.supervision.assignments import Assignments
from standby.supervision.checkpoints import Coordinator


def add(job: Path, config: JobConfig, planned: Plan) -> None:
    """Add the dead-letter task of `planned` to the last complete checkpoint of the job in `job`.

    This function may be interrupted at any moment and repeated.  The job can also still be resumed without dead
    letters.

    Raises:
        CorruptData: a snapshot of the checkpoint cannot be read.
        PipelineError: the dead letters cannot be written to the specified place.
        Unavailable: the disk is full or cannot be written.
    """
    task = planned.letter_task
    invariant(task is not None, "the plan has dead letters", job=config.name)
    if task is None or len(planned.topology.subtasks_of(task.index)) > 1:
        return  # a cell begins to perform the subtask without a snapshot of it
    check_unbound(config, planned, task.name)
    journal = Journal(job, config.durability == "os")
    try:
        assignments = Assignments(planned.topology)
        coordinator = Coordinator(assignments, 0, True)
        for record in journal.records():
            assignments.apply(record)
            coordinator.apply(record)
        epoch, files = coordinator.complete, coordinator.files
        newest = newest_manifest(job)
        if newest is not None and newest[0] > epoch:
            epoch, files = newest
        if not epoch:
            return  # without a checkpoint, every task begins without state
        incarnation = assignments.tasks[task.name].incarnation
        fetch(job, files.values(), config)
        cut = _cut(job, planned, task, epoch, files, _store_position(job, config, planned, task, epoch, incarnation))
        path = first_name(task.name, epoch, incarnation, bool(config.store))
        durable = config.durability == "os"
        file = (path, *write_parts(job / path, [cut.pack(), *whole(planned.chain(task.index))], durable))
        upload(job, config, [(file,)])
        write_manifest(job, epoch, {**files, task.name: (file,)}, durable)
        if epoch == coordinator.complete:  # otherwise, the supervisor reads the change from the manifest
            journal.append([{"kind": "added", "task": task.name, "files": [list(file)]}])
    finally:
        journal.close()


def _store_position(
    job: Path, config: JobConfig, planned: Plan, task: Task, epoch: int, incarnation: int
) -> tuple[int, int]:
    """Return (rows, digest) of the dead-letter store, to which an earlier version of the job may have written."""
    store = planned.store(planned.topology.outputs(task.index)[0], job)
    try:
        holds = store.open(task.name, config.run, incarnation)
        holds = store.discard(epoch) if isinstance(store, StagingStore) else holds
    finally:
        store.close()
    return holds.next, holds.digest


def _cut(
    job: Path, planned: Plan, task: Task, epoch: int, files: Mapping[str, Files], position: tuple[int, int]
) -> Cut:
    """Return the task's first cut, in which it has not read anything from its inputs, some of which may have ended."""
    topology = planned.topology
    cuts = [_cut_of(job, files[topology.tasks[source].name]) for source in topology.upstream(task.index)]
    inputs: dict[int, tuple[int, int, bool]] = {
        channel.id: (0, 0, cut.finished) for channel, cut in zip(topology.inputs(task.index), cuts, strict=True)
    }
    outputs: dict[int, tuple[int, int]] = {
        channel.id: position for channel in topology.outputs(task.index) if channel.target == OUTSIDE
    }
    return Cut(epoch, inputs, outputs, max(cut.last_ns for cut in cuts), all(cut.finished for cut in cuts))


def _cut_of(job: Path, files: Files) -> Cut:
    path, _, digest = files[-1]
    return Cut.unpack(read_parts(job / path, digest)[0])
