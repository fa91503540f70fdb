"""A job in this process, record by record, and its upgrades: chains of all tasks, connected as the plan says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from causal.cut import Cut
from causal.ids import OUTSIDE
from causal.ports import Output
from causal.records.batch import RECORDS, WATERMARK, Chunk, decode_records, watermark
from operators import Pipeline
from operators.engine.chain import FusedChain
from operators.engine.plan import Plan, plan
from operators.runtime.regrouping import Saved
from operators.runtime.unchanged_state import converted
from tests.unit.operators.scene import NoSink, Services, config, parts_of, records_chunk, source

GROUPS = 16
Build = Callable[[Any], dict[str, Any]]
"""Returns the streams of a pipeline, by the name of their sink."""


class Version:
    """One version of a job of a source `in`, or of several.

    Attributes:
        out: the records of each sink, in order.
    """

    def __init__(self, build: Build, sources: Sequence[str] = ("in",), **settings: Any) -> None:
        pipeline = Pipeline("test")
        streams = [pipeline.source(name, source()) for name in sources]
        for name, stream in build(streams[0] if len(streams) == 1 else streams).items():
            stream.sink(name, NoSink())
        self.plan: Plan = plan(pipeline, config(key_groups=GROUPS, **settings))
        self.chains = [self.plan.chain(task.index) for task in self.plan.topology.tasks]
        self.out: dict[str, list[Any]] = {}
        self._positions: dict[int, int] = {}
        self._waiting: deque[tuple[int, Chunk]] = deque()

    def give(self, *records: Any, source: str = "in", mark_s: float | None = None) -> Version:
        """Pass a batch of records to a source, then a watermark, and let all that follows happen."""
        topology = self.plan.topology
        (channel,) = (
            channel for channel in topology.channels
            if channel.source == OUTSIDE and topology.tasks[channel.target].operators[0] == source
        )  # fmt: skip
        chunks = [records_chunk(records)] if records else []
        chunks += [] if mark_s is None else [watermark(int(mark_s * 1_000_000_000))]
        for chunk in chunks:
            self._waiting.append((channel.id, chunk))
            self._settle()
        return self

    def _settle(self) -> None:
        topology = self.plan.topology
        while self._waiting:
            number, chunk = self._waiting.popleft()
            channel = topology.channels[number]
            task = topology.tasks[channel.target]
            if not isinstance(self.chains[task.index], FusedChain):
                if chunk.kind == RECORDS:
                    self.out.setdefault(task.operators[0], []).extend(decode_records(chunk.body))
                continue
            input = topology.inputs(task.index).index(channel)
            first = self._positions.get(number, 0)
            self._positions[number] = first + (chunk.count if chunk.kind != WATERMARK else 0)
            outputs = self.chains[task.index].deliver(input, [chunk], first, Services())
            self._send(task.index, outputs)

    def _send(self, task: int, outputs: Sequence[Output]) -> None:
        channels = self.plan.topology.outputs(self.plan.topology.tasks[task].index)
        self._waiting.extend((channels[ordinal].id, chunk) for ordinal, chunk in outputs)

    def becomes(self, other: Version, allow_dropped: bool = False) -> Version:
        """Make `other` continue from a savepoint of this version.

        Raises:
            PipelineError: the upgrade is refused.
        """
        topology, after = self.plan.topology, other.plan.topology
        saved = []
        for task in topology.tasks:
            inputs: dict[int, tuple[int, int, bool]] = {
                channel.id: (7, 1, False) for channel in topology.inputs(task.index)
            }
            outputs: dict[int, tuple[int, int]] = {channel.id: (9, 2) for channel in topology.outputs(task.index)}
            files = (tuple(parts_of(self.chains[task.index], True)),)
            saved.append(Saved(task, Cut(4, inputs, outputs, 11), files))
        _, chains = converted(topology, saved, other.plan, GROUPS, allow_dropped, lambda: nullcontext(self.plan))
        for task in after.tasks:
            if isinstance(other.chains[task.index], FusedChain):
                other.chains[task.index].restore(chains[task.name])
        return other
