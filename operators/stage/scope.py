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
"""A number that exceeds the number of inputs of any task."""


@dataclass(slots=True)
class Arrival:
    """The origin of the current records; each chain has one such object, which is updated before each event.

    Attributes:
        generation: the epoch of the most recent change of the job graph; part of the state.
        input: the ordinal of the input channel; -1 if the event delivers nothing.
        first: the position of the first record in that channel; -1 if the event delivers nothing.
        origin_ns: the time at which the oldest of the records entered the job, or 0 if it is unknown; used only for
            metrics, never in state.
        mark_ns: the most recent watermark of the input before this event; None if there was none.
    """

    generation: int = 0
    input: int = -1
    first: int = -1
    origin_ns: int = 0
    mark_ns: int | None = None

    @property
    def channel(self) -> int:
        """The number of the input channel; after a change of the graph, it is greater than all earlier numbers.

        Such a change renumbers the inputs, and positions begin at 0 again.
        """
        return self.generation * INPUTS_MAX + self.input


@dataclass(slots=True)
class Scope:
    """The context of one stage in one task.

    Attributes:
        ordinal: the stage's place in the chain.
        task: the name of the task, for example "count/1".
        numbers: the counter that all stages of the chain share, which returns 0, 1, 2 …
        inputs: the number of the task's input channels.
        tags: the tags of the operator's side outputs that have a reader.
        times: for each input channel, the function that returns a record's event time, or None if there is none.
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
        """Return the event-time function for an operator's records.

        With several inputs whose functions differ, the returned function uses that of the input being delivered.
        """
        if len(node.edges) == 1:
            return node.edges[0].time_of
        known = [time_of for time_of in self.times if time_of is not None]
        if len(known) < len(self.times) or not known:
            return None
        arrival = self.arrival
        return known[0] if len(set(known)) == 1 else lambda record: known[arrival.input](record)
