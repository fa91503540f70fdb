"""The two inputs of a join: which sides must be there, and the pair that a user's function makes into a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
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


class KeyKinds:
    """Of which kind the keys of each side are: a side keyed by 1 and one keyed by "1" never meet, and nobody is told.

    State: the kinds seen so far, in snapshots by `header` and `load`.
    """

    def __init__(self) -> None:
        self._seen: tuple[dict[str, None], dict[str, None]] = ({}, {})

    def unlike(self, side: int, keys: Sequence[Any]) -> int:
        """How many of these keys are of a kind that the other side, though it has had keys, has never had."""
        found = Counter(map(type, keys))
        kinds = {kind: "number" if issubclass(kind, _NUMBERS) else kind.__name__ for kind in found}
        self._seen[side].update(dict.fromkeys(kinds.values()))
        others = self._seen[1 - side]
        return sum(count for kind, count in found.items() if kinds[kind] not in others) if others else 0

    def header(self) -> list[list[str]]:
        return [list(kinds) for kinds in self._seen]

    def load(self, told: Sequence[Sequence[str]]) -> None:
        self._seen = dict.fromkeys(told[LEFT]), dict.fromkeys(told[RIGHT])

    @staticmethod
    def merged(headers: Sequence[Sequence[Sequence[str]]]) -> list[list[str]]:
        """What the tasks that told these have seen together."""
        return [list(dict.fromkeys(kind for told in headers for kind in told[side])) for side in (LEFT, RIGHT)]


_NUMBERS = (int, float, Decimal)  # 1, 1.0, True and Decimal(1) are one key


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
