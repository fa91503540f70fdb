"""Adds the subtask that writes dead letters to a job that a failing record has stopped, at the job's last checkpoint.

This is the only change to a graph that needs no savepoint.  The new subtask is the last one and reads only elements
that are sent after the checkpoint, so all other subtasks keep their numbers, state and logs.  A replay therefore
performs the same events.  The event of the record on which user code raised has produced no output yet, so that record
becomes a dead letter.  If the last task is a cell that performs the new subtask as well, its snapshot is written again
with the snapshot of the subtask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from causal.commands import Files
from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import invariant
from causal.ports import StagingStore
from causal.storage.files import read_parts, write_parts
from causal.topology import Channel, Task
from deploy.savepoints.stored_checkpoints import check_unbound, fetch, first_name, upload
from operators.engine.cell_chain import Progress, each_subtask_of_cell, of_cell
from operators.engine.plan import Plan
from operators.runtime.rescaling import whole
from standby.storage.journal import Journal
from standby.storage.manifest_files import newest_manifest
from standby.storage.manifests import write_manifest
from standby.supervision.assignments import Assignments
from standby.supervision.checkpoints import Coordinator


def add(job: Path, config: JobConfig, planned: Plan) -> None:
    """Add the dead-letter subtask of `planned` to the last complete checkpoint of the job in `job`.

    This function may be interrupted at any moment and repeated.  The job can also still be resumed without dead
    letters.

    Raises:
        CorruptData: a snapshot of the checkpoint cannot be read.
        PipelineError: the dead letters cannot be written to the specified place.
        Unavailable: the disk is full or cannot be written.
    """
    task = planned.letter_task
    invariant(task is not None, "the plan has dead letters", job=config.name)
    if task is None:
        return
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
        position = _store_position(job, config, planned, epoch, incarnation)
        over = _over(job, planned, files)
        # A task that only writes dead letters may have a snapshot, too: that of an interrupted attempt.
        own = files[task.name] if len(planned.topology.subtasks_of(task.index)) > 1 else ()
        if own:
            parts = _added(job, planned, task, own, over, position)
        else:
            last_ns = max(_parts(job, each)[0].last_ns for each in files.values())
            inputs = _inputs(planned, task, over)
            cut = Cut(epoch, inputs, {_output(planned).id: position}, last_ns, all(over.values()))
            parts = [cut.pack(), *whole(planned.chain(task.index))]
        path = first_name(task.name, epoch, incarnation, bool(config.store or own))
        durable = config.durability == "os"
        file = (path, *write_parts(job / path, parts, durable))
        upload(job, config, [(file,)])
        write_manifest(job, epoch, {**files, task.name: (*own[:-1], file)}, durable)
        if epoch == coordinator.complete:  # otherwise, the supervisor reads the change from the manifest
            journal.append([{"kind": "added", "task": task.name, "files": [list(each) for each in (*own[:-1], file)]}])
    finally:
        journal.close()


def _output(planned: Plan) -> Channel:
    """Return the channel to the store of the dead letters, which is the last channel."""
    return planned.topology.channels[-1]


def _store_position(job: Path, config: JobConfig, planned: Plan, epoch: int, incarnation: int) -> tuple[int, int]:
    """Return (rows, digest) of the dead-letter store, to which an earlier version of the job may have written."""
    output = _output(planned)
    store = planned.store(output, job)
    try:
        holds = store.open(planned.topology.account(output), config.run, incarnation)
        holds = store.discard(epoch) if isinstance(store, StagingStore) else holds
    finally:
        store.close()
    return holds.next, holds.digest


def _over(job: Path, planned: Plan, files: Mapping[str, Files]) -> dict[int, bool]:
    """Return whether each subtask had processed all of its input at the checkpoint, by index."""
    topology = planned.topology_without_letters
    over: dict[int, bool] = {}
    for task in topology.tasks:
        cut, parts = _parts(job, files[task.name])
        subtasks = topology.subtasks_of(task.index)
        cell = len(subtasks) > 1
        progress = {name: then for name, then, _ in each_subtask_of_cell(parts)} if cell else {}
        for subtask in subtasks:
            over[subtask.index] = progress[subtask.name][2] if cell else cut.finished
    return over


def _inputs(planned: Plan, task: Task, over: Mapping[int, bool]) -> dict[int, tuple[int, int, bool]]:
    """Return the inputs of the dead-letter subtask that come from other tasks; nothing of them has been read."""
    letters, channel_of = planned.subtasks.tasks[-1].index, planned.topology.subtask_channel
    inputs = [(channel.id, channel_of(channel)) for channel in planned.topology.inputs(task.index)]
    return {number: (0, 0, over[channel.source]) for number, channel in inputs if channel.target == letters}


def _added(
    job: Path, planned: Plan, task: Task, files: Files, over: Mapping[int, bool], position: tuple[int, int]
) -> list[bytes]:
    """Return the last snapshot of a cell with that of the dead-letter subtask."""
    cut, parts = _parts(job, files)
    letters = planned.subtasks.tasks[-1]
    inputs = {**cut.inputs, **_inputs(planned, task, over)}
    cut = replace(cut, inputs=inputs, outputs={**cut.outputs, _output(planned).id: position})
    ended = [over[channel.source] for channel in planned.subtasks.inputs(letters.index)]
    subtasks: list[tuple[str, Progress, Sequence[bytes]]] = [
        (name, progress, list(own))
        for name, progress, own in each_subtask_of_cell(parts)
        if name != letters.name  # an earlier attempt may have added it
    ]
    subtasks.append((letters.name, ([0] * len(ended), ended, all(ended)), whole(planned.subtask_chain(letters.index))))
    return [cut.pack(), *of_cell(subtasks)]


def _parts(job: Path, files: Files) -> tuple[Cut, Sequence[bytes]]:
    """Return the cut of the last file of a task's snapshot, and the parts after it."""
    path, _, digest = files[-1]
    first, *parts = read_parts(job / path, digest)
    return Cut.unpack(first), parts
