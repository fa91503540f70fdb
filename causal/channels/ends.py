"""All channel ends of one task, set up at the positions in the restored cut."""

from __future__ import annotations

from typing import Any

from causal.channels.partition import Partition
from causal.channels.queue import InputQueue
from causal.channels.receiver import Receiver, Upstream
from causal.channels.sender import Sender
from causal.channels.sink_channel import SinkChannel
from causal.config import JobConfig
from causal.cut import Cut
from causal.ids import OUTSIDE, TaskIndex
from causal.topology import LETTER_TASK, Topology

ORDERED_BYTES_MAX = 256 << 20
"""The number of bytes that may wait on one input of an ordered task before that input's sender has to wait."""


class Channels:
    """The inputs in the order of `Topology.inputs`, and the outputs in the order of `Topology.outputs`.

    Attributes:
        partitions: the inputs that readers fill.
        network: the inputs from other tasks.
        downstream: the outputs to tasks, by channel.
        sinks: the outputs to stores, by channel, including the outputs that carry requests.
        ordered: whether inputs are delivered according to the rule of `causal.task.picking.ByContent`.
    """

    def __init__(self, topology: Topology, task: TaskIndex, config: JobConfig, cut: Cut) -> None:
        self.inputs: list[InputQueue] = []
        self.partitions: list[Partition] = []
        self.network: list[Receiver] = []
        self.ordered = topology.tasks[task].ordered
        hoard_bytes_max = ORDERED_BYTES_MAX if self.ordered else 0
        here, keeping = topology.tasks[task].name, config.guarantee != "none"
        for ordinal, channel in enumerate(topology.inputs(task)):
            position, digest, ended = cut.inputs.get(channel.id, (0, 0, False))
            if channel.source == OUTSIDE:
                place = cut.places.get(channel.id)
                partition = Partition(channel.id, ordinal, channel.source, position, ended, place)
                self.partitions.append(partition)
                self.inputs.append(partition)
                continue
            receiver = Receiver(
                channel.id, ordinal, channel.source, position, digest, ended, config.channel_window_bytes,
                hoard_bytes_max, _upstream(topology, channel.source, config.sharing_depth),
            )  # fmt: skip
            receiver.verifying = keeping
            self.network.append(receiver)
            self.inputs.append(receiver)
        for each in self.inputs:
            each.mark, each.idle = cut.marks.get(each.id, (None, False))
        self.downstream: dict[int, Sender] = {}
        self.sinks: dict[int, SinkChannel] = {}
        self.outputs: list[Sender | SinkChannel] = []
        for channel in topology.outputs(task):
            position, digest = cut.outputs.get(channel.id, (0, 0))
            if channel.target == OUTSIDE:
                staging, requests = config.guarantee == "epoch", channel.carries_requests
                name = topology.account(channel)
                sink = SinkChannel(channel.id, name, position, digest, cut.epoch, staging, requests)
                self.sinks[channel.id] = sink
                self.outputs.append(sink)
                continue
            name = f"{here} to {topology.tasks[channel.target].name}"
            sender = self.downstream[channel.id] = Sender(
                channel.id, channel.target, name, position, digest, cut.epoch, config.channel_window_bytes, keeping
            )
            self.outputs.append(sender)

    @property
    def committed(self) -> int:
        """The epoch below which all staged rows are visible."""
        return min((sink.committed for sink in self.sinks.values()), default=0)

    def inflight_bytes(self) -> tuple[int, int]:
        """Return the in-flight log sizes in bytes: (in memory, on disk)."""
        memory = disk = 0
        for sender in self.downstream.values():
            memory += sender.log.memory_bytes
            disk += sender.log.disk_bytes
        return memory, disk

    def counters(self) -> dict[str, Any]:
        """Return the counters, each summed over all channel ends."""
        memory, disk = self.inflight_bytes()
        letters = [s.visible for s in self.sinks.values() if s.name == LETTER_TASK]
        return {
            "records_in": sum(c.delivered - c.ended for c in self.partitions),
            "records_out": sum(s.visible for s in self.sinks.values() if not s.requests),
            **({"dead_letters": sum(letters)} if letters else {}),
            "withdrawn_rows": sum(s.withdrawn for s in self.sinks.values() if not s.requests),
            "bundle_delta_bytes": sum(s.bundle_delta_bytes for s in self.sinks.values()),
            "inflight_bytes": memory,
            "inflight_disk_bytes": disk,
            "queued_bytes": sum(c.queued_bytes for c in self.network),
            "sent_bytes": sum(o.sent_bytes for o in self.downstream.values()),
            "sent_bytes_to": {str(o.target): o.sent_bytes for o in self.downstream.values()},
            "sent_frames": sum(o.sent_frames for o in self.downstream.values()),
            "received_bytes": sum(c.received_bytes for c in self.network),
            "delivered_elements": sum(c.delivered for c in self.inputs),
        }


def _upstream(topology: Topology, sender: TaskIndex, depth: int) -> Upstream:
    """Return the tasks upstream of a channel from `sender`, according to the topology."""
    behind = (sender, *topology.ancestors(sender))
    return Upstream(behind, frozenset(topology.shared_by(sender, depth)), topology.held_by(sender, depth))
