"""Whether failures that take a task back to an earlier moment of its own explain what it showed.

A task's rows are a line that grows, and that each failure may cut back once, at any time after it, to any length; what
follows must be what follows there.  The next row alone does not always show where it was cut back to, so all
explanations are followed, and dropped when a row does not fit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.guarantees.history import Failed, Output, Spec

EXPLANATIONS_MAX = 2000

Wanted = Mapping[str, Sequence[tuple[int, Hashable]]]
"""(place, key) of all rows that the task leaves of each channel, in order."""
Places = Mapping[str, Mapping[tuple[int, Hashable], int]]
"""The index of each row among those of its channel."""


@dataclass(frozen=True, slots=True)
class Row:
    """The end of a line."""

    output: Output
    above: Row | None
    """The row before it."""
    same_key: Output | None
    """The last one of its key before it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A line as it may be by now."""

    end: Row | None
    counts: Mapping[str, int]
    """Rows of each channel."""
    last: Mapping[Hashable, Output | None]
    """The last row of each key."""
    cuts: int


def explained(spec: Spec, events: Sequence[Output | Failed], wanted: Wanted, ended: bool) -> bool:
    """Return whether that holds for these rows of one task, with the failures between them; to its end, if it has
    ended.
    """
    open_: list[Explanation] = [Explanation(None, dict.fromkeys(wanted, 0), {}, 0)]
    places = {channel: {step: at for at, step in enumerate(steps)} for channel, steps in wanted.items()}
    failures = 0
    for event in events:
        if isinstance(event, Failed):
            failures += 1
            continue
        open_ = [longer for each in open_ for longer in _behind(spec, each, event, places, failures)]
        if not open_:
            return False
        if len(open_) > EXPLANATIONS_MAX:
            raise ValueError(f"more than {EXPLANATIONS_MAX} explanations; record rows that show more of their state")
    if not ended:
        return True
    return any(all(each.counts[channel] == len(steps) for channel, steps in wanted.items()) for each in open_)


def _behind(spec: Spec, before: Explanation, output: Output, places: Places, failures: int) -> Iterator[Explanation]:
    """Yield every line with that row at its end: the one before with one more, or cut back first if a failure allows
    it.
    """
    channel, step = output.element.channel, (output.element.place, output.key)
    place = places[channel].get(step, -1)
    counts, last, end, cuts = dict(before.counts), dict(before.last), before.end, before.cuts
    while counts[channel] >= place >= 0:
        if counts[channel] == place and spec.follows(last.get(output.key), output):
            row = Row(output, end, last.get(output.key))
            yield Explanation(row, {**counts, channel: place + 1}, {**last, output.key: output}, cuts)
        if end is None or before.cuts == failures:
            return
        cuts = before.cuts + 1
        counts[end.output.element.channel] -= 1
        last[end.output.key] = end.same_key
        end = end.above
