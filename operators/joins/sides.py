"""The two inputs of a join: which sides must be there, and the pair that a user's function makes into a record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from causal.errors import CausalError, invariant
from operators.failures import Failures
from operators.graph import Node
from operators.ownership import own

LEFT, RIGHT = 0, 1
HOW = ("inner", "left", "right", "outer")

Pair = Callable[[Any, Any], Any]
"""(left, right) -> record; None on the side that is missing."""


def keeps_left(how: str) -> bool:
    """Whether what is on the left gives a result even alone."""
    return how in ("left", "outer")


def keeps_right(how: str) -> bool:
    """Whether what is on the right gives a result even alone."""
    return how in ("right", "outer")


def pair(left: Any, right: Any) -> tuple[Any, Any]:
    """What a join without a function gives."""
    return left, right


def time_of_side(node: Node, side: int) -> Callable[[Any], Any] | None:
    """Where the event time is in the records of one side; None where that is not one function."""
    told = [edge.time_of for edge in node.edges if edge.side == side]
    return told[0] if told and all(time_of is told[0] for time_of in told) else None


def inputs_of_side(node: Node, side: int, task: str, inputs: int) -> list[int]:
    """Ordinals of the input channels of one side.

    Args:
        task: for example "named/1".
        inputs: how many input channels the task has.
    """
    index = int(task.rpartition("/")[2])
    found: list[int] = []
    place = 0
    for edge in node.edges:
        senders = edge.source.parallelism
        if edge.key_of is None and not edge.broadcast and node.parallelism <= senders:
            senders = len(range(index, senders, node.parallelism))
        if edge.side == side:
            found += range(place, place + senders)
        place += senders
    invariant(place == inputs, "every input of a join is of one side", operator=node.name, sides=place, inputs=inputs)
    return found


class Pairing:
    """Calls the user's function; what it gives shares nothing with what is kept."""

    def __init__(self, operator: str, failures: Failures, fn: Pair) -> None:
        self._operator = operator
        self._failures = failures
        self._fn = fn

    def add(self, out: list[Any], key: Any, left: Any, right: Any, index: int | None = None) -> None:
        """The record of a pair goes to `out`, or to the dead letters.

        Args:
            index: of the record that brings the pair, among those of the event; None when a watermark does.
        """
        try:
            out.append(own(self._fn(left, right)))
        except CausalError:
            raise
        except Exception as problem:
            self._failures.failed(self._operator, key, index, {"left": left, "right": right}, problem)
