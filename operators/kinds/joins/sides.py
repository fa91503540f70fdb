"""The two inputs of a join: which sides must be present, and the user's function that converts a pair to a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from gc import is_tracked
from itertools import islice
from typing import Any

from causal.errors import CausalError, invariant
from operators.graph import LEFT, RIGHT, Node
from operators.records.ownership import kept
from operators.records.reading import builds_result, only_reads
from operators.stage.failures import Failures
from operators.stage.stages import Ended

HOW = ("inner", "left", "right", "outer")

Pair = Callable[[Any, Any], Any]
"""A function (left, right) -> record; the argument for a missing side is None."""


def keeps_left(how: str) -> bool:
    """Return whether a left record without a partner produces a result."""
    return how in ("left", "outer")


def keeps_right(how: str) -> bool:
    """Return whether a right record without a partner produces a result."""
    return how in ("right", "outer")


def pair(left: Any, right: Any) -> tuple[Any, Any]:
    """Return the pair itself, which is the result of a join without a function."""
    return left, right


def time_of_side(node: Node, side: int) -> Callable[[Any], Any] | None:
    """Return the event-time function of one side; None if its inputs have no such function, or have different ones."""
    functions = [edge.time_of for edge in node.edges if edge.side == side]
    return functions[0] if functions and all(time_of is functions[0] for time_of in functions) else None


def inputs_of_side(node: Node, side: int, task: str, inputs: int) -> list[int]:
    """Return the ordinals of the input channels of one side.

    Args:
        task: the name of the task, for example "named/1".
        inputs: the number of input channels of the task.
    """
    index = int(task.rpartition("/")[2])
    ordinals: list[int] = []
    place = 0
    for edge in node.edges:
        senders = edge.source.parallelism
        if edge.key_of is None and not edge.broadcast and node.parallelism <= senders:
            senders = len(range(index, senders, node.parallelism))
        if edge.side == side:
            ordinals += range(place, place + senders)
        place += senders
    invariant(place == inputs, "every input of a join is of one side", operator=node.name, sides=place, inputs=inputs)
    return ordinals


class KeyKinds:
    """The kinds of the keys on each side; they show which keys, such as 1 and "1", can never match.

    State: the kinds seen so far, which `header` and `load` save and restore.
    """

    def __init__(self) -> None:
        self._seen: tuple[dict[str, None], dict[str, None]] = ({}, {})

    def unlike(self, side: int, keys: Sequence[Any]) -> int:
        """Count the keys whose kind has never occurred on the other side; return 0 if that side has had no keys."""
        counts = Counter(map(type, keys))
        kinds = {kind: "number" if issubclass(kind, _NUMBERS) else kind.__name__ for kind in counts}
        self._seen[side].update(dict.fromkeys(kinds.values()))
        others = self._seen[1 - side]
        return sum(count for kind, count in counts.items() if kinds[kind] not in others) if others else 0

    def header(self) -> list[list[str]]:
        return [list(kinds) for kinds in self._seen]

    def load(self, header: Sequence[Sequence[str]]) -> None:
        self._seen = dict.fromkeys(header[LEFT]), dict.fromkeys(header[RIGHT])

    @staticmethod
    def merged(headers: Sequence[Sequence[Sequence[str]]]) -> list[list[str]]:
        """Merge the headers of several tasks."""
        return [list(dict.fromkeys(kind for header in headers for kind in header[side])) for side in (LEFT, RIGHT)]


_NUMBERS = (int, float, Decimal)  # 1, 1.0, True and Decimal(1) are the same key


def apart(fn: Pair) -> Pair:
    """Wrap a join's function to receive copies, because records are shared, unless it clearly only reads them."""
    return fn if only_reads(fn) else lambda left, right: fn(kept(left), kept(right))


class Pairing:
    """Calls the user's function; neither its arguments nor its result share mutable objects with the state."""

    def __init__(self, operator: str, failures: Failures, fn: Pair) -> None:
        self._operator = operator
        self._failures = failures
        self._fn = apart(fn)
        self._builds = only_reads(fn) and builds_result(fn)
        """Whether each result is a new object, so that only what it contains may need a copy."""

    def add(self, out: list[Any], key: Any, left: Any, right: Any, index: int | None = None) -> None:
        """Append the record for a pair to `out`, or write a dead letter.

        Args:
            index: the index in the event of the record that completes the pair; None if a watermark completes it.
        """
        try:
            out.append(kept(self._fn(left, right)))
        except CausalError:
            raise
        except Exception as problem:
            self._failures.failed(self._operator, key, index, {"left": left, "right": right}, problem)

    def add_all(self, out: list[Any], keys: Sequence[Any], lefts: Sequence[Any], rights: Sequence[Any]) -> None:
        """Append the records for pairs that a watermark completes, or write dead letters, in the order of the pairs."""
        start, failed = len(out), 0
        results = map(self._fn, lefts, rights)
        while len(out) - start + failed < len(keys):
            try:
                out.extend(results if self._builds else map(kept, results))
                if len(out) - start + failed == len(keys):
                    break
                raise Ended(f"the function of {self._operator!r} raised StopIteration")  # which map() takes as its end
            except CausalError:
                raise
            except Exception as problem:
                place = len(out) - start + failed
                failed += 1
                pair = {"left": lefts[place], "right": rights[place]}
                self._failures.failed(self._operator, keys[place], None, pair, problem)
        if self._builds and any(map(is_tracked, islice(out, start, None))):
            out[start:] = map(kept, out[start:])
