"""The journal of objects: when processes die, sleep or get no answer, what was acknowledged stays, once and in order.

Each process opens the journal and appends items, as a store does. Then: what a process found when it opened is the
beginning of what there is at the end, after it are items of this process and its successors alone, and each item that
was acknowledged is there once.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import CausalError, CorruptData, Fenced, Unavailable
from causal.records.values import decode, encode
from causal.storage import object_journal as shared_journal
from causal.storage.object_journal import JournalObjects, ObjectJournal, Place
from tests.properties.objects import Memory, Seat, Turns

FOLDER = "_causal/out-0"
TRIES_MAX = 500


def folded(records: list[bytes]) -> tuple[int, list[list[int]]]:
    """Return (incarnation, items)."""
    incarnation, items = decode(records[0])
    return incarnation, [*items, *map(decode, records[1:])]


def final(memory: Memory) -> list[list[int]]:
    memory._failing = 0.0
    records = JournalObjects(memory, FOLDER).read()
    return folded(records)[1] if records else []


class Process:
    """A process that opens the journal and appends `count` items."""

    def __init__(self, incarnation: int, count: int, renews: float, chance: Random) -> None:
        self.incarnation = incarnation
        self.acknowledged: list[list[int]] = []
        self.began_with: list[list[int]] | None = None
        self._count = count
        self._renews = renews
        self._chance = chance

    def run(self, seat: Seat) -> None:
        journal = ObjectJournal("out/0", FOLDER, "memory", lambda: seat)
        try:
            items = self._open(journal)
            self.began_with = list(items)
            for number in range(self._count):
                items = self._append(journal, items, [self.incarnation, number])
        except Fenced:
            return

    def _open(self, journal: ObjectJournal) -> list[list[int]]:
        for _ in range(TRIES_MAX):
            journal.prepare()
            try:
                items: list[list[int]] = []
                while journal.is_there:
                    owner, items = folded(journal.read())
                    if owner > self.incarnation:
                        raise Fenced("younger")
                    if journal.seize():
                        break
                journal.renew(encode([self.incarnation, items]))
                return items
            except Unavailable:
                continue
        raise AssertionError("it never opens")

    def _append(self, journal: ObjectJournal, items: list[list[int]], item: list[int]) -> list[list[int]]:
        renewing = self._chance.random() < self._renews
        known = True
        for _ in range(TRIES_MAX):
            try:
                assert journal.is_ours(self.incarnation)
                if not known:
                    owner, items = folded(journal.read())
                    assert owner == self.incarnation
                    known = True
                if item not in items:
                    journal.append(encode(item))
                    items = [*items, item]
                if item not in self.acknowledged:
                    self.acknowledged.append(item)
                if renewing:
                    journal.renew(encode([self.incarnation, items]))
                return items
            except Unavailable:
                known = False
        raise AssertionError("it never appends")


def history(seed: int) -> tuple[Memory, list[Process]]:
    chance = Random(seed)
    memory = Memory(chance, chance.choice([0.0, 0.0, 0.05, 0.2]))
    turns = Turns(memory, chance, chance.choice([5, 40, 200]), chance.choice([0.0, 0.02]))
    renews = chance.choice([0.1, 0.5, 1.0])
    processes = [
        Process(number, chance.randrange(1, 12), renews, chance) for number in range(1, chance.randrange(3, 6))
    ]
    for process in processes:
        turns.add(process.run)
    turns.run()
    return memory, processes


def check(memory: Memory, processes: list[Process]) -> None:
    items = final(memory)
    assert len({tuple(item) for item in items}) == len(items), "an item is there twice"
    for process in processes:
        own = [item for item in items if item[0] == process.incarnation]
        assert own[: len(process.acknowledged)] == process.acknowledged, "an acknowledged item is gone"
        assert len(own) <= len(process.acknowledged) + 1, "an item is there that its process never wrote"
        if process.began_with is not None:
            size = len(process.began_with)
            assert items[:size] == process.began_with, "what a process found has changed"
            assert all(owner >= process.incarnation for owner, _ in items[size:]), "a zombie has written"


@given(seed=st.integers(0, 2**40))
def test_what_was_acknowledged_stays_once_and_in_order(seed: int) -> None:
    check(*history(seed))


def _in_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generation counts as soon as it is created."""

    def begin(self: ObjectJournal, kind: str, body: bytes) -> None:
        place = self._following
        if self._create(shared_journal.Record(place, self._token, 0, kind, body)) is not None:
            raise Unavailable("taken")

    monkeypatch.setattr(ObjectJournal, "_begin", begin)


def _without_reading_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seal counts as soon as it is created."""

    def seize(self: ObjectJournal) -> bool:
        last = self._reading.last
        if last is None or last.closed:
            return True
        place = (last.place[0], last.place[1] + 1)
        return self._create(shared_journal.Record(place, self._token, -1, "seal", b"")) is None

    monkeypatch.setattr(ObjectJournal, "seize", seize)


def _without_seals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ObjectJournal, "seize", lambda self: True)


def _removing_seals(monkeypatch: pytest.MonkeyPatch) -> None:
    def unneeded(self: JournalObjects, first: Place) -> list[str]:
        return [self.name(each) for each in self._places if each < first]

    monkeypatch.setattr(JournalObjects, "_unneeded", unneeded)


def _believing_any_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is there already counts as one's own."""
    monkeypatch.setattr(JournalObjects, "existing", lambda self, place: None)


@pytest.mark.parametrize(
    "sabotage",
    [_in_the_past, _without_reading_again, _without_seals, _removing_seals, _believing_any_record],
)
def test_the_property_finds_a_journal_without_one_of_its_rules(
    sabotage: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)  # type: ignore[operator]
    for seed in range(500):
        try:
            check(*history(seed))
        except (AssertionError, CausalError):
            return
    pytest.fail("nothing was found")


def alone(memory: Memory, process: Process) -> None:
    turns = Turns(memory, Random(1))
    turns.add(process.run)
    turns.run()


def test_nothing_but_one_small_object_per_open_stays() -> None:
    memory = Memory()
    for incarnation in range(1, 20):
        alone(memory, Process(incarnation, 10, 0.3, Random(7)))
    live = JournalObjects(memory, FOLDER)
    live.read()
    assert live.last is not None
    left = [name for name in memory.stored if not name.startswith(live.name(live.last.place)[: len(FOLDER) + 9])]
    assert len(left) <= 19 + 10
    assert len(final(memory)) == 190


def test_a_damaged_record_is_named() -> None:
    memory = Memory()
    alone(memory, Process(1, 3, 0.0, Random(1)))
    name = sorted(memory.stored)[-1]
    memory.stored[name] = memory.stored[name][:-3]
    with pytest.raises(CorruptData, match=name):
        JournalObjects(memory, FOLDER).read()


def test_a_journal_that_is_void_begins_anew_and_fences_its_owner() -> None:
    memory = Memory()
    owner, other = (ObjectJournal("out/0", FOLDER, "memory", lambda: memory) for _ in range(2))
    for journal in (owner, other):
        journal.prepare()
    owner.renew(encode([1, []]))
    owner.append(encode([1, 0]))
    other.void()
    other.void()
    assert owner.is_ours(1)
    with pytest.raises(Fenced):
        owner.append(encode([1, 1]))
    assert not other.is_there
    other.renew(encode([2, []]))
    assert final(memory) == []
