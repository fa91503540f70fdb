"""Chains whose operators are observed: what each of them receives and emits in a step, for the first divergence (0056).

Values are compared by their Python text, which distinguishes 1 from 1.0 and a tuple from a list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from causal.records.rows import listed
from causal.records.vectors import Vectors
from operators.engine.chain import FusedChain
from operators.replay.performance import Step
from operators.stage.branch import Branch

CHARACTERS_MAX = 2_000
"""The characters of a value that are sent to the command."""
SHOWN_MAX = 5
"""The records of one kind that are sent to the command."""


@dataclass(slots=True)
class Observed:
    """The records that one operator has received and emitted in one step.

    Attributes:
        received: the key and the record, as text.
        emitted: a record as text, and the place in `received` of the record that it comes from; -1 if a timer, a
            window or several records have caused it.
    """

    received: list[tuple[str, str]] = field(default_factory=list)
    emitted: list[tuple[str, int]] = field(default_factory=list)

    @property
    def digests(self) -> tuple[int, int]:
        """Numbers that are the same for the same content in any order, in forks of one process."""
        received = sum(map(hash, self.received))
        return received & _MASK, sum(hash(text) for text, _ in self.emitted) & _MASK


_MASK = (1 << 63) - 1

Observation = dict[str, Observed]
"""The records that each operator has received and emitted in one step."""

OBSERVATION: Observation = {}
"""The observation of the current step in this process."""


class ObservedChain(FusedChain):
    """A chain that adds to the observation of the step."""

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._first = -1
        """The place of the first record of the batch that a stage processes, among all that it has received."""
        for stage in self._stages:
            stage.traced = True

    def _run(self, branch: Branch, side: int, records: Any, keys: list[Any] | None) -> None:
        own = OBSERVATION.setdefault(branch.stage.shown_as, Observed())
        self._first = len(own.received)
        values = _values(records)
        own.received += zip(
            ("" if keys is None else repr(key) for key in keys or [None] * len(values)), map(repr, values), strict=False
        )
        super()._run(branch, side, records, keys)

    def _forward(self, branch: Branch, output: Any) -> None:
        stage, first = branch.stage, self._first
        own = OBSERVATION.setdefault(stage.shown_as, Observed())
        traces = first >= 0 and stage.traces and not stage.makes_marks
        for place, value in enumerate(_values(output)):
            own.emitted.append((repr(value), first + stage.source_of(place) if traces else -1))
        for tag, values in stage.aside.items():
            own.emitted += [(f"{tag}: {value!r}", -1) for value in values]
        self._first = -1
        super()._forward(branch, output)


def _values(records: Any) -> Sequence[Any]:
    if isinstance(records, Vectors):
        from operators.records.arrow_rows import rows_of

        return rows_of(records.batch, 0, len(records))
    return listed(records) if records else ()


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first operator that emits other records for the same input.

    Attributes:
        operator: its name; empty if no operator does, so that the sink itself writes other rows.
        record, key: the record for which it does, as text; both are empty if a timer or a window has fired.
        before, after: what it emits only in one version.
        step: the step in which it does.
        place: file:line of the operator in the new code.
        added: whether only the new code has the operator.
    """

    operator: str
    record: str
    key: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    step: Step
    place: str = ""
    added: bool = False


def diverging(
    order: Iterable[str],
    known: Collection[str],
    before: Mapping[str, Sequence[int]],
    after: Mapping[str, Sequence[int]],
) -> str:
    """Return the first operator of the new code that emits something else for the same input; "" if none does.

    Args:
        order: the operators of the new code, each after all from which it reads.
        known: the operators of the recorded version. An operator that is new changes something only if one after it
            receives something else.
        before, after: operator → the digests of what it receives and emits.
    """
    added = ""
    for operator in order:
        if operator not in known:
            added = operator
            continue
        old, new = (tuple(each.get(operator, (0, 0))) for each in (before, after))
        if old[1] != new[1]:
            return added if added and old[0] != new[0] else operator
    return ""


def divergence(operator: str, before: Observed, after: Observed, step: Step) -> Divergence:
    """Return the difference of one operator in one step, beginning with the earliest record that causes some."""
    emitted = [Counter(text for text, _ in each.emitted) for each in (before, after)]
    only = [emitted[0] - emitted[1], emitted[1] - emitted[0]]
    cause = _NONE
    for observed, own in zip((after, before), reversed(only), strict=True):
        for text, place in observed.emitted:
            if text in own and place >= 0 and (cause is _NONE or place < cause[0]):
                cause = (place, *observed.received[place])
    sides = []
    for observed, own in zip((before, after), only, strict=True):
        left = Counter(own)
        texts = []
        for text, place in observed.emitted:
            if left[text] and (cause is _NONE or place == cause[0]):
                left[text] -= 1
                texts.append(text[:CHARACTERS_MAX])
        sides.append(tuple(texts[:SHOWN_MAX]))
    return Divergence(operator, cause[2][:CHARACTERS_MAX], cause[1][:CHARACTERS_MAX], sides[0], sides[1], step)


_NONE = (-1, "", "")
