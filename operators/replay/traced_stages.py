"""The causes of what a stage emits: the record that its function received, or those that shaped its state.

Most stages know from which record of a batch an output comes. Of the others, what they emit is noted
where they emit it: a window when its function is called, a join when it pairs two records, a timer when it fires. Where
nothing is known, an output comes from all that may have caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from operators.kinds.ordering.hold import HoldStage
from operators.kinds.windows.triggered import TriggeredStage
from operators.replay.provenance import FOLDS, LATEST, PARTS, STATE, Cause, Derivation, Provenance, TracedOperator
from operators.stage.stages import Stage

_MODES = {
    "count": FOLDS, "reduce": FOLDS, "sum": FOLDS, "aggregate_table": FOLDS, "table": LATEST, "table_join": LATEST,
    "window": PARTS, "window_table": PARTS, "join": PARTS, "window_join": PARTS, "join_table": PARTS, "call": PARTS,
}  # fmt: skip
"""The kinds of operators of which more is known than that any earlier record of a key may count."""
_SPLIT = frozenset(("table_filter", "map_values", "group_by", "to_stream", "table_join"))
"""The kinds that process each record of a batch alone, and can therefore be given one by one."""


class StageTrace:
    """The tracing of one stage.

    Attributes:
        operator: the place of the operator in the provenance.
        shown_as: the name of the operator.
        stateful: whether what reaches the stage is a visit.
    """

    def __init__(self, stage: Stage, provenance: Provenance, subtask: str) -> None:
        self._stage = stage
        self._provenance = provenance
        self.stateful = bool(stage.loaders()) and not isinstance(stage, HoldStage)
        vectors = type(stage).__module__.startswith("operators.kinds.vectors")
        mode = STATE if vectors or isinstance(stage, TriggeredStage) else _MODES.get(stage.kind, STATE)
        self.shown_as = stage.shown_as
        self._refuses = stage.failures.set_aside
        """Whether a record that the stage received may have had no part in anything."""
        if mode == FOLDS and self._refuses and stage.kind != "count":
            mode = STATE
        self.operator = provenance.operator(TracedOperator(subtask, stage.shown_as, stage.kind, mode, self.stateful))
        self._kept = set(stage.kept_keys()) if self.stateful else set[Any]()
        """The keys that had state at the checkpoint and have not been visited since."""
        tables = stage.tables()
        self._plain = [table.values for table in tables] if all(each.group_of is None for each in tables) else None
        self._records: Any = ()
        self._causes: Sequence[Cause] = ()
        self._keys: Sequence[Any] = ()
        self._first = -1
        """The first visit of the batch that the stage processes; -1 without state."""
        self._splits = stage.kind in _SPLIT and not stage.failures.set_aside
        self.notes: dict[int, tuple[list[Any], dict[int, Cause]]] = {}
        """Noted causes of the records in a list, by the list's id."""
        stage.traced = True
        self._install()

    def _install(self) -> None:
        """Replace the methods with which the stage emits records by ones that note their causes."""

    # The records of a batch.

    def run(
        self, side: int, records: Any, keys: list[Any] | None, causes: Sequence[Cause], elements: Sequence[int]
    ) -> Any:
        """Process a batch, as `Stage.run` and `Stage.run_side` do."""
        self._records = records
        self._arrive(side, records, keys, causes, elements)
        return self._each(side, records, keys) if self._splits else self._perform(side, records, keys)

    def _perform(self, side: int, records: Any, keys: list[Any] | None) -> Any:
        stage = self._stage
        return stage.run_side(side, records, keys) if stage.sides else stage.run(records, keys)

    def _arrive(
        self, side: int, records: Any, keys: list[Any] | None, causes: Sequence[Cause], elements: Sequence[int]
    ) -> None:
        self._causes, self._first = causes, -1
        if self.stateful:
            self._keys = [None] * len(causes) if keys is None else keys
            empty = self._empty(self._keys)
            self._first = self._provenance.visit(self.operator, side, self._keys, causes, elements, empty)

    def _empty(self, keys: Sequence[Any]) -> frozenset[Any]:
        """Return those of the keys that have no state now."""
        distinct = dict.fromkeys(keys)
        if self._plain is not None:
            tables = self._plain
            return frozenset(key for key in distinct if not any(map(_kept, map(_getter(key), tables))))
        fresh = [
            key for key in distinct if key not in self._kept and not self._provenance.history(self.operator, key).visits
        ]
        return frozenset(fresh)

    def _each(self, side: int, records: list[Any], keys: list[Any] | None) -> list[Any]:
        """Process the records one by one, to learn what each of them causes."""
        stage, out, noted = self._stage, list[Any](), dict[int, Cause]()
        for index, record in enumerate(records):
            own = None if keys is None else keys[index : index + 1]
            some = stage.run_side(side, [record], own) if stage.sides else stage.run([record], own)
            noted.update(dict.fromkeys(range(len(out), len(out) + len(some)), self._of(index)))
            out += some
        self.notes[id(out)] = out, noted
        return out

    def _of(self, index: int) -> Cause:
        """Return the cause that a record of the batch is for what the stage emits."""
        return self._causes[index] if self._first < 0 else self._first + index

    # What the stage emits.

    def causes_of_run(self, output: Any) -> list[Cause]:
        """Return the causes of what the stage emitted for the batch, or of one piece of it."""
        noted, stage = self._noted(output), self._stage
        if not stage.traces:
            return self._rest(output, noted, self._of_batch)
        of, source_of = self._of, stage.source_of
        return [noted[place] if place in noted else of(source_of(place)) for place in range(len(output))]

    def _rest(self, output: Any, noted: Mapping[int, Cause], cause: Callable[[], Cause]) -> list[Cause]:
        """Return the noted causes, and one cause for all other records."""
        rest = cause() if len(noted) < len(output) else 0
        return [noted.get(place, rest) for place in range(len(output))]

    def _of_batch(self) -> Cause:
        """Return the cause of what some records of the batch have caused, perhaps with earlier ones of their keys."""
        if self._first < 0:
            return self._derived("records", tuple(self._causes))
        visits = range(self._first, self._first + len(self._causes))
        return self._derived("records", tuple(visits), tuple(dict.fromkeys(self._keys)))

    def causes_of_event(self, output: Any) -> list[Cause]:
        """Return the causes of what the stage emitted when time advanced, a timer fired or an answer arrived."""
        return self._rest(output, self._noted(output), lambda: self._derived("watermark", (), None))

    def causes_aside(self, records: list[Any]) -> list[Cause]:
        """Return the causes of records that the stage put aside."""
        noted = self._noted(records)
        return [noted[place] if place in noted else self._aside(record) for place, record in enumerate(records)]

    def _aside(self, record: Any) -> Cause:
        """Return the cause of a record that was put aside as it is."""
        same = [cause for each, cause in zip(self._records, self._causes, strict=True) if each == record]
        return same[0] if len(same) == 1 else self._derived("records", tuple(same or self._causes))

    def of_letter(self, key: Any, causes: tuple[Cause, ...]) -> Cause:
        """Return the cause of a dead letter of a key; of the batch that is being processed, all its records are meant.

        Args:
            causes: what failed, as far as it is known.
        """
        visits, until = tuple[int, ...](), len(self._provenance.cause_of)
        if len(self._records):
            until = self._first
            visits = tuple(self._first + at for at, each in enumerate(self._keys) if each == key)
        letter = self._derived("letter", (*causes, *visits), (key,))
        letter.until = until
        return letter

    def _noted(self, output: Any) -> Mapping[int, Cause]:
        noted: Mapping[int, Cause] = self.notes.pop(id(output), (output, {}))[1]
        return noted

    def note(self, out: list[Any], start: int, cause: Cause) -> None:
        """Remember the cause of all records of a list from a place on."""
        if len(out) > start:
            self.notes.setdefault(id(out), (out, {}))[1].update(dict.fromkeys(range(start, len(out)), cause))

    def end(self) -> None:
        """End the event."""
        self.notes.clear()
        self._records, self._causes = (), ()

    def _derived(
        self,
        kind: str,
        causes: tuple[Cause, ...],
        keys: tuple[Any, ...] | None = (),
        window: tuple[int, int] | None = None,
        exact: bool = False,
        older: bool = False,
    ) -> Derivation:
        provenance = self._provenance
        until = len(provenance.cause_of)
        return Derivation(self.operator, len(provenance.events) - 1, kind, causes, keys, until, window, exact, older)


def _kept(value: Any) -> bool:
    return value is not None and value != {}


def _getter(key: Any) -> Callable[[Any], Any]:
    return lambda values: values.get(key)
