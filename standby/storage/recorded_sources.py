"""The input that a recording needs and that exists only in ingest logs, which keep it by a mark (0043, 0053)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from causal.config import JobConfig
from causal.cut import Cut
from causal.ids import OUTSIDE, ChannelId, TaskName
from standby.blueprint import Blueprint

if TYPE_CHECKING:
    from operators.ingest.ingest_log import IngestLog

Positions = Mapping[str, tuple[int, ...]]
"""Source → the position of each partition."""


class RecordedSources:
    """The sources of a version that have an ingest log, which are those with a companion.

    The name of a companion begins with that of its source.

    Args:
        job: the job directory on this machine.
    """

    def __init__(self, job: Path, config: JobConfig, blueprint: Blueprint) -> None:
        self._job = job
        self._config = config
        self._partitions: dict[str, dict[int, tuple[TaskName, ChannelId]]] = {}
        topology, companions = blueprint.topology, [each.name for each in blueprint.companions]
        for channel in topology.channels:
            if channel.source == OUTSIDE:
                source = topology.subtasks.tasks[topology.subtask_channel(channel).target].operators[0]
                if any(name.startswith(f"{source}-") for name in companions):
                    place = topology.tasks[channel.target].name, channel.id
                    self._partitions.setdefault(source, {})[channel.partition] = place
        self._logs: dict[str, IngestLog] = {}

    def positions(self, cut_of: Callable[[TaskName], Cut]) -> Positions:
        """Return the positions of all partitions, from the cuts of the tasks that read them."""
        cuts = {
            task: cut_of(task) for task in {task for each in self._partitions.values() for task, _ in each.values()}
        }
        return {
            source: tuple(
                cuts[task].inputs[channel][0] if channel in cuts[task].inputs else 0
                for _, (task, channel) in sorted(partitions.items())
            )
            for source, partitions in self._partitions.items()
        }

    def keep(self, positions: Positions) -> int:
        """Keep the input from these positions on, and what is before them no longer; return its size in bytes.

        Raises:
            Unavailable: a log cannot be used now.
        """
        return sum(self._log(source, len(of)).record(of) for source, of in positions.items() if of)

    def forget(self) -> None:
        """Keep no input for the recording any longer."""
        from operators.ingest.marks import RECORDING

        for source, partitions in self._partitions.items():
            self._log(source, len(partitions)).forget([RECORDING])

    def _log(self, source: str, channels: int) -> IngestLog:
        from operators.ingest.place import IngestPlace  # most jobs do not need this module

        if source not in self._logs:
            config = self._config
            place = IngestPlace(self._job, source, channels)
            if config.store:
                place = IngestPlace(self._job, source, channels, config.store, config.place_in_store)
            self._logs[source] = place.open()
        return self._logs[source]
