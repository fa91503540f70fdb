"""The operators that recorded runs are made of, as what they may do: one without state, one determined, one by chance.

    Passed   a row per element, no state: any row can follow any other
    Folded   per key a fold in which order counts, over one channel: an execution without failures has no choice
    Merged   per key a chain over two channels, with dice: the order of the channels and the dice are chance, but each
             row says the hash of all rows before it, so it can follow one row only

Used by the checker and by the pipeline that is recorded, so that both mean the same.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from tests.guarantees.history import Element, Output, Spec

FOLD_KEYS, MERGE_KEYS = 6, 5
_MODULUS = 1_000_000_007


class Passed:
    """An element leaves itself."""

    def keys(self, element: Element) -> Sequence[Hashable]:
        return (element.channel,)

    def follows(self, before: Output | None, output: Output) -> bool:
        return True


def folded(before: Mapping[str, Any] | None, place: int) -> dict[str, int]:
    """Return the state of `Folded` in a key after a row: no two orders of elements have the same sum."""
    n, total = (before["n"], before["sum"]) if before is not None else (0, 0)
    return {"n": n + 1, "sum": (total * 4099 + place + 1) % _MODULUS}


class Folded:
    """An element goes through two keys that its channel has for itself."""

    def keys(self, element: Element) -> Sequence[Hashable]:
        return fold_keys(element.channel, element.place)

    def follows(self, before: Output | None, output: Output) -> bool:
        return bool(output.content == folded(None if before is None else before.content, output.element.place))

    def reference(self, inputs: Mapping[str, int]) -> dict[Hashable, list[tuple[Element, dict[str, int]]]]:
        """Return the reference run: by key all rows that there are without failures."""
        rows: dict[Hashable, list[tuple[Element, dict[str, int]]]] = {}
        for element in (Element(channel, place) for channel, count in inputs.items() for place in range(count)):
            for key in self.keys(element):
                line = rows.setdefault(key, [])
                line.append((element, folded(line[-1][1] if line else None, element.place)))
        return rows


def fold_keys(channel: str, place: int) -> tuple[str, str]:
    """Two keys of an element."""
    return f"{channel}-{place % FOLD_KEYS}", f"{channel}-{FOLD_KEYS + place % (FOLD_KEYS - 1)}"


def chained(before: Mapping[str, Any] | None, content: Mapping[str, Any]) -> str:
    """The hash that `Merged` says: over that of the row before and what this one says itself."""
    previous = before["hash"] if before is not None else ""
    return blake2b((previous + json.dumps(content, sort_keys=True)).encode(), digest_size=8).hexdigest()


def merged(before: Mapping[str, Any] | None, element: Element, dice: float) -> dict[str, Any]:
    """Return the state of `Merged` in a key after a row."""
    content: dict[str, Any] = {
        "n": (before["n"] if before is not None else 0) + 1,
        "of": [element.channel, element.place],
    }
    content["dice"] = dice
    return {**content, "hash": chained(before, content)}


class Merged:
    """An element goes through one key, which elements of all channels share."""

    def keys(self, element: Element) -> Sequence[Hashable]:
        return (f"shared-{element.place % MERGE_KEYS}",)

    def follows(self, before: Output | None, output: Output) -> bool:
        content = output.content
        return bool(content == merged(None if before is None else before.content, output.element, content["dice"]))


SPECS: Mapping[str, Spec] = {"passed": Passed(), "folded": Folded(), "merged": Merged()}
"""The specs by the name in a recorded row."""
