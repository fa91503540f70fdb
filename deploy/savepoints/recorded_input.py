"""The input of sources with an ingest log, kept as long as a savepoint, so that a rollback reads it again (0043).

Only a job's own savepoints keep input: a copy of a savepoint is the beginning of another job, which has no log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from causal.commands import Files
from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import CausalError, PipelineError
from causal.ids import OUTSIDE
from causal.storage.files import read_parts
from causal.topology import Topology
from standby.blueprint import Blueprint
from standby.storage.manifest_files import newest_manifest

if TYPE_CHECKING:
    from operators.ingest.ingest_log import IngestLog
    from operators.ingest.place import IngestPlace

Positions = Mapping[tuple[str, int], int]
"""(source, partition) → position."""


def positions_at(where: Path, topology: Topology, files: Mapping[str, Files]) -> dict[tuple[str, int], int]:
    """Return the positions of all sources at a checkpoint, whose files are in a directory."""
    positions: dict[tuple[str, int], int] = {}
    for task in topology.tasks:
        partitions = [channel for channel in topology.inputs(task.index) if channel.source == OUTSIDE]
        if partitions:
            path, _, digest = files[task.name][-1]
            cut = Cut.unpack(read_parts(where / path, digest)[0])
            for channel in partitions:
                source = topology.subtasks.tasks[topology.subtask_channel(channel).target].operators[0]
                positions[source, channel.partition] = cut.inputs[channel.id][0]
    return positions


def keep(job: Path, savepoint: str, positions: Positions, known: Collection[str]) -> None:
    """Keep the input from these positions on, until `forget`.

    Args:
        known: the names of the other savepoints of the job; input that others needed is no longer kept.
    """
    for _, log, of_channels in _logs(job, positions):
        log.forget(set(log.kept()) - {savepoint, *known})
        log.keep(savepoint, of_channels)


def forget(job: Path, savepoints: Collection[str], topology: Topology) -> None:
    """Keep no input for these savepoints any longer.

    Args:
        topology: the graph of the version that made them.
    """
    partitions = {
        (topology.subtasks.tasks[channel.target].operators[0], channel.partition): 0
        for channel in topology.subtasks.channels
        if channel.source == OUTSIDE
    }
    for _, log, _ in _logs(job, partitions):
        log.forget(savepoints)


def return_to(job: Path, positions: Positions) -> None:
    """Make the logs count the input from these positions on as unread; the job's processes have ended."""
    for _, log, of_channels in _logs(job, positions):
        log.return_to(of_channels)


def problem(job: Path, where: Path) -> str:
    """Return why the input since the savepoint in a directory cannot be read again; empty if it can."""
    try:
        manifest = newest_manifest(where)
        positions = {} if manifest is None else positions_at(where, Blueprint.load(where).topology, manifest[1])
        for place, _, of_channels in _logs(job, positions):
            for channel, position in enumerate(of_channels):
                place.check_readable(channel, position)
    except PipelineError as refusal:
        return str(refusal).partition(", so they")[0]
    except (CausalError, OSError) as unknown:
        return f"it is not known whether input since then is kept: {unknown}"
    return ""


def _logs(job: Path, positions: Positions) -> Iterator[tuple[IngestPlace, IngestLog, list[int]]]:
    """Yield the ingest log of each source that has one, with its place and the position of each channel."""
    from operators.ingest.place import IngestPlace  # most jobs do not need this module

    config = JobConfig.load(job)
    for source in sorted({source for source, _ in positions}):
        count = 1 + max(partition for name, partition in positions if name == source)
        places = [IngestPlace(job, source, count)]
        if config.store:
            places.append(IngestPlace(job, source, count, config.store, config.place_in_store))
        for place in places:
            log = place.open()
            if log.exists:
                yield place, log, [positions.get((source, partition), 0) for partition in range(count)]
                break
