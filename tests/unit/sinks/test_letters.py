"""The letters of refused rows say what the store says, wherever a process dies, in files and in a shared store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from causal.errors import Fenced, PipelineError, RowRefused, Unavailable
from causal.ports import Bundle, SinkStore, StoreState
from operators.sinks import CallbackSink, SqliteSink
from operators.sinks.conformance import Subject, withdrawal
from operators.sinks.contract.letters import Kept, Letters, letter_of, standing, stored
from operators.sinks.contract.refusals import RefusingStore, refusing
from operators.sinks.contract.refused_rows import RefusedRows
from operators.sinks.delivery.outward import Delivery
from operators.sinks.objects import object_place
from operators.sinks.objects.refused_objects import RefusedObjects
from tests.properties.objects import Died, Memory
from tests.unit.sinks.test_conformance import rows_in_sqlite

TASK, RUN = "out/0", "run-1"


class Place:
    """A SQLite file that refuses every `n` that ends in 3, and a place of letters.

    Attributes:
        dies: the step in the middle of which the process dies, and how many of these steps it does before.
    """

    def __init__(self, directory: Path, memory: Memory | None) -> None:
        self.directory = directory
        self.memory = memory
        self.sink = SqliteSink(directory / "out.db", busy_ms=50)
        self.dies: tuple[str, int] | None = None

    def letters(self) -> Letters:
        letters: Any = RefusedRows(self.directory / "letters", TASK, RUN)
        if self.memory is not None:
            letters = RefusedObjects(Memory.url, TASK, RUN)
        for step in ("keep", "show"):
            setattr(letters, step, self._deadly(step, getattr(letters, step)))
        return letters  # type: ignore[no-any-return]

    def opened(self, incarnation: int, sink: Any = None) -> tuple[RefusingStore, StoreState]:
        inner: Any = (sink or self.sink).open_store(TASK, self.directory)
        inner.write = self._deadly("write", inner.write)
        store = refusing(inner, sink or self.sink, "out", TASK, self.letters())
        state = store.open(TASK, RUN, incarnation)
        with sqlite3.connect(self.sink.path) as db:
            db.execute(
                """CREATE TRIGGER IF NOT EXISTS rule BEFORE INSERT ON output
                WHEN json_extract(NEW.record, '$.n') % 10 = 3 BEGIN SELECT RAISE(ABORT, 'no threes'); END"""
            ) if sink is None else None
        return store, state

    def _deadly(self, step: str, do: Callable[..., None]) -> Callable[..., None]:
        def deadly(*arguments: Any) -> None:
            if self.dies == (f"before {step}", 0):
                raise Died
            do(*arguments)
            if self.dies == (f"behind {step}", 0):
                raise Died
            if self.dies is not None and self.dies[0].endswith(step):
                self.dies = (self.dies[0], self.dies[1] - 1)

        return deadly

    def shown(self) -> list[tuple[int, Any]]:
        """(position, record) of each letter that a reader sees."""
        if self.memory is not None:
            lines = [text for name, text in sorted(self.memory.stored.items()) if name.startswith("refused/")]
        else:
            path = self.directory / "letters" / "refused-out-0.jsonl"
            lines = path.read_bytes().splitlines() if path.exists() else []
        letters = list(map(json.loads, lines))
        assert all((letter["task"], letter["run"], letter["operator"]) == (TASK, RUN, "out") for letter in letters)
        return [(letter["position"], letter["record"]) for letter in letters]

    def hidden(self) -> bool:
        """Return whether letters are kept that no reader sees."""
        if self.memory is not None:
            return any(name.startswith("refused-kept/") for name in self.memory.stored)
        return any(path.stat().st_size for path in (self.directory / "letters").glob(".*.kept"))

    def left_out(self) -> list[int]:
        with sqlite3.connect(self.sink.path) as db:
            return [position for (position,) in db.execute("SELECT position FROM causal_refused ORDER BY position")]


@pytest.fixture(params=["file", "objects"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    memory = Memory() if request.param == "objects" else None
    monkeypatch.setattr(object_place, "connected", lambda *_: memory)
    yield Place(tmp_path, memory)


def bundle_of(sink: Any, state: StoreState, numbers: list[int], incarnation: int) -> Bundle:
    rows = sink.encode([{"n": n} for n in numbers])
    digest = xxh3_64_intdigest(rows, state.digest)
    return Bundle(state.next, len(numbers), rows, digest, 0, incarnation, ())


STEPS = ("before keep", "behind keep", "before write", "behind write", "before show", "behind show")


@pytest.mark.parametrize("done", range(3))
@pytest.mark.parametrize("step", STEPS)
def test_a_successor_that_writes_other_rows_contradicts_no_letter(place: Place, step: str, done: int) -> None:
    """The rows that no store had come in another order after a death, as where they were drawn again."""
    rows = [1, 3, 2, 13, 4, 23, 5, 6, 33, 7]
    place.dies = (step, done)
    for incarnation in (1, 2, 3):
        store, state = place.opened(incarnation)
        left = rows if incarnation == 1 else sorted(set(rows) - numbers(place), reverse=incarnation == 2)
        assert len(left) == 10 - state.next
        try:
            while left:
                bundle = bundle_of(place.sink, state, left[:3], incarnation)
                store.write(bundle)
                state, left = replace(state, next=state.next + bundle.count, digest=bundle.digest), left[3:]
        except Died:
            place.dies = ("behind keep", 0) if incarnation == 1 else None
            continue
        break
    assert [position for position, _ in place.shown()] == place.left_out()
    assert sorted(record["n"] for _, record in place.shown()) == [3, 13, 23, 33]
    assert sorted(row["n"] for row in rows_in_sqlite(place.sink.path, TASK)) == [1, 2, 4, 5, 6, 7]
    assert store.refused == 4
    store.close()
    place.opened(4)[0].close()
    assert len(place.shown()) == 4 and not place.hidden()


def numbers(place: Place) -> set[int]:
    """Return the numbers that have a row or a letter."""
    rows = {row["n"] for row in rows_in_sqlite(place.sink.path, TASK)}
    letters = {record["n"] for _, record in place.shown()}
    assert not rows & letters
    return rows | letters


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("done", range(4))
def test_what_was_promised_without_some_rows_loses_none_of_their_letters(place: Place, step: str, done: int) -> None:
    """A journal promises the bundle again with each row that is refused; the letters of those before must stay."""
    taken: list[int] = []

    def fn(delivery: Delivery) -> None:
        for position, record in zip(delivery.positions, delivery.records, strict=True):
            if record["n"] % 10 == 3:
                raise RowRefused(position, "no threes")
        taken.extend(record["n"] for record in delivery.records)

    sink = CallbackSink(fn, batch_rows=1)
    place.dies = (step, done)
    store: RefusingStore | None = None
    for incarnation in (1, 2):
        try:
            store, state = place.opened(incarnation, sink)
            if state.next == 0:
                store.write(bundle_of(sink, state, [1, 3, 13, 2, 23], incarnation))
            break
        except Died:
            place.dies = None
    assert list(dict.fromkeys(taken)) == [1, 2] and store is not None and store.refused == 3
    store.close()
    place.opened(3, sink)[0].close()
    assert place.shown() == [(1, {"n": 3}), (2, {"n": 13}), (4, {"n": 23})] and not place.hidden()


def test_letters_of_rows_that_are_withdrawn_go_with_them(place: Place) -> None:
    subject = Subject(place.sink, lambda task: rows_in_sqlite(place.sink.path, task))
    store, state = place.opened(1)
    withdrawal.fill_marked(subject, store, state, 28)
    assert [position for position, _ in place.shown()] == [3, 13, 23]
    store.close()
    store, state = place.opened(2)
    left = store.withdraw([mark for mark in state.marks if mark.next == 21][0])  # type: ignore[attr-defined]
    assert [position for position, _ in place.shown()] == place.left_out() == [3, 13]
    store.write(withdrawal.marked(replace(bundle_of(place.sink, left, [33], 2))))
    assert [position for position, _ in place.shown()] == place.left_out() == [3, 13, 21]
    inner: Any = store._inner
    inner.withdraw([mark for mark in inner.last_bundle().marks if mark.next == 7][0])  # and its process dies
    store.close()
    store, state = place.opened(3)
    assert [position for position, _ in place.shown()] == place.left_out() == [3] and state.next == 7
    store.close()


def test_a_zombie_shows_nothing(place: Place) -> None:
    old, state = place.opened(1)
    bundle = bundle_of(place.sink, state, [1, 3], 1)
    place.dies = ("behind write", 0)  # one that refuses rows is none
    with pytest.raises(Died):
        old.write(bundle)
    place.dies = None
    young, state = place.opened(2)
    assert place.shown() == [(1, {"n": 3})], "its successor shows what the store took"
    with pytest.raises(Fenced):
        old.write(bundle)
    with pytest.raises(Fenced):
        old.write(bundle_of(place.sink, state, [13], 1))
    young.write(bundle_of(place.sink, state, [4, 23], 2))
    young.close()
    old.close()
    third, _ = place.opened(3)
    assert place.shown() == [(1, {"n": 3}), (3, {"n": 23})]
    third.close()


class Losing:
    """Takes a bundle without its refused rows, and loses the first acknowledgement."""

    def __init__(self, inner: SinkStore) -> None:
        self._inner, self.lost = inner, False
        self.open, self.last_bundle, self.close = inner.open, inner.last_bundle, inner.close

    def write(self, bundle: Bundle) -> None:
        self._inner.write(bundle)
        if not self.lost:
            self.lost = True
            raise Unavailable("the line went dead")


def test_a_bundle_that_follows_one_without_an_answer_leaves_its_letters_where_they_are(place: Place) -> None:
    store, state = place.opened(1)
    store._inner = Losing(store._inner)  # type: ignore[assignment]
    bundle = bundle_of(place.sink, state, [1, 3], 1)
    with pytest.raises(Unavailable):
        store.write(bundle)
    assert not place.shown() and place.hidden()
    store.write(bundle_of(place.sink, replace(state, next=2, digest=bundle.digest), [13, 4], 1))
    assert place.shown() == [(1, {"n": 3}), (2, {"n": 13})] and store.refused == 2
    store.close()


def kept(position: int, before: int, *numbers: int, run: str = RUN, first: int = 0) -> Kept:
    letters = [letter_of("out", TASK, run, position + n, {"n": n}, "no") for n in numbers]
    return Kept(run, first, first + 9, 77, before, letters)


def test_only_what_the_store_has_left_out_stands() -> None:
    first, second, again = kept(0, 2, 1, 2), kept(0, 4, 3), kept(0, 2, 1)
    every = [kept(0, 2, 5, run="run-0"), first, second]
    state = StoreState(9, 77, (), refused=5)
    assert standing(every, RUN, state) == [first, second]
    assert standing(every, RUN, replace(state, refused=4)) == [first]
    changes: list[dict[str, int]] = [{"refused": 2}, {"refused": 3}, {"next": 8}, {"digest": 1}]
    for change in changes:
        assert standing(every, RUN, replace(state, **change)) == []  # type: ignore[arg-type]
    assert standing([first, again], RUN, replace(state, refused=3)) == [again], "it was refused again, alone"
    assert stored([first, again], RUN) == [again] and stored([first, second], RUN) == [first, second]
    assert stored([], RUN) == []


def test_a_letter_is_shown_once_and_again_for_another_row_at_its_position(place: Place) -> None:
    letters = place.letters()
    for n, value in enumerate(("old", "old", "new")):
        row = letter_of("out", TASK, RUN, 3, {"v": value}, "no")
        letters.keep(Kept(RUN, 3, 4, n, n, [row]), 1)
        letters.show(1)
    assert sorted(record["v"] for _, record in place.shown()) == ["new", "old"] and not place.hidden()


def test_a_torn_letter_is_cut_off(tmp_path: Path) -> None:
    rows = RefusedRows(tmp_path / "letters", TASK, RUN)
    rows.keep(kept(3, 0, 0), 1)
    rows.show(1)
    rows.path.write_bytes(rows.path.read_bytes() + b'{"operator": "ou')
    [hidden] = rows.path.parent.glob(".*.kept")
    other = RefusedRows(tmp_path / "letters", TASK, RUN)
    other.keep(kept(4, 1, 0), 1)
    hidden.write_bytes(hidden.read_bytes() + hidden.read_bytes()[:9])
    other.keep(kept(5, 2, 0), 1)
    other.show(1)
    assert [json.loads(line)["position"] for line in rows.path.read_text().splitlines()] == [3, 4, 5]


def test_letters_of_another_run_are_not_added_to(tmp_path: Path) -> None:
    old = RefusedRows(tmp_path / "letters", TASK, "run-0")
    old.keep(kept(3, 0, 0, run="run-0"), 1)
    old.show(1)
    with pytest.raises(PipelineError, match="another run; move it elsewhere"):
        RefusedRows(tmp_path / "letters", TASK, RUN).keep(kept(3, 0, 0), 1)
