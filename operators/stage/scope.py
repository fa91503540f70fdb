"""The kind of an operator, and the surroundings that its stage is built from; `operators.kinds.registry` lists all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from causal.config import JobConfig
from operators.capture.active import Active
from operators.graph import Node
from operators.stage.arrival import Arrival
from operators.stage.failures import Failures
from operators.stage.stages import Stage


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
        """The function for the event time of an operator's records: of several inputs, of the one being delivered."""
        if len(node.edges) == 1:
            return node.edges[0].time_of
        known = [time_of for time_of in self.times if time_of is not None]
        if len(known) < len(self.times) or not known:
            return None
        arrival = self.arrival
        return known[0] if len(set(known)) == 1 else lambda record: known[arrival.input](record)


def nothing(node: Node) -> None:
    """Check nothing, for a kind of which nothing more can be wrong."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One method of the builder that makes an operator.

    Attributes:
        stage: makes its stage for one task.
        keyed: whether it works behind key_by only, there as well, or never.
        begins: whether it is a task of its own, whatever feeds it.
        check: refuses a node that cannot run, with a PipelineError.
        takes: which form of records it works on.
        gives: the form of what it gives; None: the form that it is given.
        keeps_time: whether what it gives has its event time where what it is given has it.
        asides: tags of its side outputs; None: whatever the user's code calls them.
    """

    stage: Callable[[Node, Scope], Stage]
    keyed: Literal["needed", "allowed", "never"] = "never"
    begins: bool = False
    check: Callable[[Node], None] = nothing
    takes: Literal["rows", "vectors", "either"] = "rows"
    gives: Literal["rows", "vectors"] | None = None
    keeps_time: bool = False
    asides: tuple[str, ...] | None = ()
