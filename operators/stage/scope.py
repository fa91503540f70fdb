"""The surroundings that the stage of an operator is built from, among them the origin of the current records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from causal.config import JobConfig
from operators.capture.active import Active
from operators.graph import Node
from operators.stage.failures import Failures

INPUTS_MAX = 1 << 20
"""More inputs than a task can have."""


@dataclass(slots=True)
class Arrival:
    """The origin of the current records: one object per chain, set before each event.

    Attributes:
        generation: the epoch of the last change of the job's graph, which is state.
        input: ordinal of the input channel; -1 where nothing is delivered.
        first: position of the first record in that channel; -1 where nothing is delivered.
        origin_ns: when the oldest of the records entered the job, 0 if unknown; for figures only, never in state.
        mark_ns: the last watermark of that input before this event; None where there was none.
    """

    generation: int = 0
    input: int = -1
    first: int = -1
    origin_ns: int = 0
    mark_ns: int | None = None

    @property
    def channel(self) -> int:
        """The input channel in the order of delivery: a channel from after a change of the graph is above all earlier
        ones.

        Such a change gives inputs other numbers, and positions begin again at 0.
        """
        return self.generation * INPUTS_MAX + self.input


@dataclass(slots=True)
class Scope:
    """The surroundings of one stage in one task.

    Attributes:
        ordinal: the stage's place in the chain.
        task: for example "count/1".
        numbers: the chain's one order: 0, 1, 2 …
        inputs: how many input channels the task has.
        tags: side outputs of the operator that are read.
        times: per input channel, where the event time is in its records; None where it is not known.
    """

    ordinal: int
    failures: Failures
    task: str
    numbers: Callable[[], int]
    config: JobConfig
    arrival: Arrival
    capture: Active
    inputs: int
    tags: frozenset[str] = frozenset()
    times: tuple[Callable[[Any], Any] | None, ...] = ()

    def time_of(self, node: Node) -> Callable[[Any], Any] | None:
        """Return the function for the event time of an operator's records: of several inputs, of the one being
        delivered.
        """
        if len(node.edges) == 1:
            return node.edges[0].time_of
        known = [time_of for time_of in self.times if time_of is not None]
        if len(known) < len(self.times) or not known:
            return None
        arrival = self.arrival
        return known[0] if len(set(known)) == 1 else lambda record: known[arrival.input](record)
