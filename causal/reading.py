"""What a source task asks of the readers of its partitions: one read ahead, more where a replay waits for it."""

from __future__ import annotations

from causal import batch
from causal.batch import Chunk
from causal.channels import Channels
from causal.determinants import Order
from causal.effects import Effect, ReadSource
from causal.events import SourceRead
from causal.input_channel import InputChannel
from causal.pace import Pace
from causal.schedule import Schedule


class Reading:
    """At most one read is outstanding per partition."""

    def __init__(self, channels: Channels, schedule: Schedule, pace: Pace) -> None:
        self._channels = channels
        self._schedule = schedule
        self._pace = pace
        self._outstanding: set[int] = set()
        self._read_out: set[int] = set()

    def due(self) -> list[Effect]:
        """The reads to ask for now."""
        effects: list[Effect] = []
        for channel in self._channels.partitions:
            if channel.id in self._outstanding or channel.id in self._read_out or channel.ended:
                continue
            if channel.queued >= self._pace.elements and not self._replay_waits_for(channel):
                continue
            self._outstanding.add(channel.id)
            effects.append(ReadSource(channel.id, channel.next, self._pace.elements))
        return effects

    def _replay_waits_for(self, channel: InputChannel) -> bool:
        if not self._schedule.replaying:
            return False
        told = self._schedule.peek()
        return type(told) is Order and told.input == channel.ordinal and channel.queued < told.count

    def answered(self, event: SourceRead) -> None:
        """Queue what a reader gave."""
        self._outstanding.discard(event.channel)
        chunks = []
        if event.records:
            chunks.append(Chunk(batch.LISTED, len(event.records), event.records, event.origin_ns))
        if event.ended:
            chunks.append(batch.end())
            self._read_out.add(event.channel)
        self._channels.by_id[event.channel].accept_read(event.first, chunks)
