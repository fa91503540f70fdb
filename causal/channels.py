"""All ends of channels of one task, set up where the restored cut says they stood."""

from __future__ import annotations

from typing import Any

from causal.checkpointing import Cut
from causal.config import JobConfig
from causal.ids import OUTSIDE, TaskIndex
from causal.input_channel import InputChannel
from causal.output_channel import OutputChannel
from causal.sink_channel import SinkChannel
from causal.topology import Topology

ORDERED_BYTES_MAX = 256 << 20
"""What may wait on one input of an ordered task before its sender has to."""


class Channels:
    """Inputs in the order of `Topology.inputs`, outputs in that of `Topology.outputs`.

    Attributes:
        partitions: inputs whose far end is a source's reader; `network`: the others.
        downstream: outputs to tasks, by channel; `sinks`: outputs to stores, by channel, those that carry
            requests among them.
        ordered: inputs are delivered by the rule of `causal.picking.ByContent`.
    """

    def __init__(self, topology: Topology, task: TaskIndex, config: JobConfig, cut: Cut) -> None:
        self.inputs: list[InputChannel] = []
        self.ordered = topology.tasks[task].ordered
        hoard_bytes_max = ORDERED_BYTES_MAX if self.ordered else 0
        for ordinal, channel in enumerate(topology.inputs(task)):
            position, digest, ended = cut.inputs.get(channel.id, (0, 0, False))
            self.inputs.append(
                InputChannel(channel.id, ordinal, channel.source, position, digest, ended, hoard_bytes_max)
            )
        for each in self.inputs:
            each.mark, each.idle = cut.marks.get(each.id, (None, False))
            each.verifying = config.guarantee != "none"
        self.by_id = {channel.id: channel for channel in self.inputs}
        self.network = [channel for channel in self.inputs if channel.source != OUTSIDE]
        self.partitions = [channel for channel in self.inputs if channel.source == OUTSIDE]
        self.downstream: dict[int, OutputChannel] = {}
        self.sinks: dict[int, SinkChannel] = {}
        self.outputs: list[OutputChannel | SinkChannel] = []
        here, keeping = topology.tasks[task].name, config.guarantee != "none"
        for channel in topology.outputs(task):
            position, digest = cut.outputs.get(channel.id, (0, 0))
            if channel.target == OUTSIDE:
                staging, requests = config.guarantee == "epoch", channel.carries_requests
                sink = SinkChannel(channel.id, here, position, digest, cut.epoch, staging, requests)
                self.sinks[channel.id] = sink
                self.outputs.append(sink)
                continue
            name = f"{here} to {topology.tasks[channel.target].name}"
            output = self.downstream[channel.id] = OutputChannel(
                channel.id, channel.target, name, position, digest, cut.epoch, config.credit_bytes, keeping
            )
            self.outputs.append(output)

    @property
    def committed(self) -> int:
        """Rows of epochs below it are visible, where they are staged."""
        return min((sink.committed for sink in self.sinks.values()), default=0)

    def inflight_bytes(self) -> tuple[int, int]:
        """(in memory, on disk)."""
        memory = disk = 0
        for output in self.downstream.values():
            memory += output.log.memory_bytes
            disk += output.log.disk_bytes
        return memory, disk

    def counters(self) -> dict[str, Any]:
        """Figures of all ends together."""
        memory, disk = self.inflight_bytes()
        return {
            "records_in": sum(c.delivered - c.ended for c in self.partitions),
            "records_out": sum(s.visible for s in self.sinks.values() if not s.requests),
            "withdrawn_rows": sum(s.withdrawn for s in self.sinks.values() if not s.requests),
            "bundle_delta_bytes": sum(s.bundle_delta_bytes for s in self.sinks.values()),
            "inflight_bytes": memory,
            "inflight_disk_bytes": disk,
            "sent_bytes": sum(o.sent_bytes for o in self.downstream.values()),
            "sent_frames": sum(o.sent_frames for o in self.downstream.values()),
            "received_bytes": sum(c.received_bytes for c in self.inputs),
            "delivered_elements": sum(c.delivered for c in self.inputs),
        }
