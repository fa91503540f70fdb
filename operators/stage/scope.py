"""The context from which an operator's stage is built, including the origin of the current records."""

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
        generation: the epoch of the last change of the job's graph; part of the state.
        input: ordinal of the input channel; -1 if nothing is delivered.
        first: position of the first record in that channel; -1 if nothing is delivered.
        origin_ns: the time at which the oldest of the records entered the job, 0 if unknown; for metrics only, never
            in state.
        mark_ns: the last watermark of that input before this event; None if there was none.
    """

    generation: int = 0
    input: int = -1
    first: int = -1
    origin_ns: int = 0
    mark_ns: int | None = None

    @property
    def channel(self) -> int:
        """The number of the input channel, which is greater after a change of the graph than all numbers before it.

        Such a change renumbers the inputs, and positions begin again at 0.
        """
        return self.generation * INPUTS_MAX + self.input


@dataclass(slots=True)
class Scope:
    """The context of one stage in one task.

    Attributes:
        ordinal: the stage's place in the chain.
        task: the name of the task, for example "count/1".
        numbers: the chain's common counter, which returns 0, 1, 2 …
        inputs: the number of the task's input channels.
        tags: the operator's side outputs that have a reader.
        times: per input channel, the function that returns a record's event time; None if it is not known.
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
        """Return the event-time function for an operator's records; with several inputs, it uses the one being
        delivered.
        """
        if len(node.edges) == 1:
            return node.edges[0].time_of
        known = [time_of for time_of in self.times if time_of is not None]
        if len(known) < len(self.times) or not known:
            return None
        arrival = self.arrival
        return known[0] if len(set(known)) == 1 else lambda record: known[arrival.input](record)
