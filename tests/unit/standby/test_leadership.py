"""Leadership: what is acted upon is never lost, whatever store, clocks and supervisors do; one of them always leads."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import CorruptData, Fenced, InvariantViolation, Unavailable
from standby.leadership import ledger as ledgers
from standby.leadership.campaign import Pause, campaign
from standby.leadership.candidacy import LOOK_NS, SILENCE_NS, STANDING_TABLE, Candidacy, Standing
from standby.leadership.ledger import WHOLE_EVERY, Ledger
from standby.leadership.term_journal import (
    UNBEGUN_MAX,
    Create,
    Names,
    Read,
    Remove,
    Request,
    Sighting,
    elected,
    inherited,
    looked,
)
from standby.leadership.terms import (
    DEAF,
    ENDED,
    RESIGNED,
    STOPPED,
    Entry,
    Term,
    entry_name,
    journal_folder,
    term_name,
)
from tests.members import examples

SECOND = 1_000_000_000


def term(number: int, holder: str) -> Term:
    return Term(number, holder, holder, f"tcp://{holder}:1", "{}", "{}")


class Store:
    """A store of objects that are created if absent."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def answer(self, request: Request | Pause) -> Any:
        if isinstance(request, Pause):
            return 0
        if isinstance(request, Names):
            return sorted(name for name in self.objects if name.startswith(request.folder + "/"))
        if isinstance(request, Read):
            return self.objects.get(request.name)
        if isinstance(request, Create):
            new = request.name not in self.objects
            self.objects.setdefault(request.name, request.data)
            return new
        for name in request.names:
            self.objects.pop(name, None)
        return None

    def remove_some(self, request: Remove, dice: random.Random) -> None:
        """Remove some of the objects, in any order: the store has no transactions."""
        for name in request.names:
            if dice.random() < 0.5:
                self.objects.pop(name, None)

    def run(self, procedure: Generator[Any, Any, Any]) -> Any:
        """Perform a procedure without any failure."""
        answer: Any = None
        while True:
            try:
                request = procedure.send(answer)
            except StopIteration as end:
                return end.value
            answer = self.answer(request)


@dataclass(slots=True)
class Record:
    """The acts of all supervisors of one world."""

    begun: dict[int, tuple[str, list[Any]]] = field(default_factory=dict)
    """Term → its leader and the decisions that it began with."""
    acted: list[tuple[int, Any]] = field(default_factory=list)
    """(term, decision) of each decision that was acted upon."""


Life = Generator[Request | Pause, Any, None]


def lead(ledger: Ledger, record: Record, dice: random.Random, holder: str) -> Life:
    """Yield a leader: decides, and acts on nothing that is not in its journal."""
    decided: list[dict[str, Any]] = []
    now_ns = yield Pause(0)
    for number in range(10_000):
        try:
            superfluous = yield from ledger.append(decided, now_ns)
        except Unavailable:
            yield Pause(LOOK_NS)
            continue
        with suppress(Unavailable):
            yield Remove(superfluous)
        if ledger.place == 1:
            assert ledger.term not in record.begun, "a term has one leader"
            record.begun[ledger.term] = (holder, list(ledger.inherited.records))
        record.acted += [(ledger.term, decision) for decision in decided]
        decided = [{"kind": "decided", "by": holder, "term": ledger.term, "number": number}] * dice.randrange(2)
        now_ns = yield Pause(dice.randrange(SECOND))


@dataclass(slots=True)
class Supervisor:
    """One supervisor, its clock and what it waits for."""

    holder: str
    ahead_ns: int
    life: Life | None = None
    waits: Request | Pause | None = None
    wakes_ns: int = 0


class World:
    """Supervisors and a store between which requests and answers are lost or late, in an order that the dice choose."""

    def __init__(self, seed: int, count: int) -> None:
        self.dice = random.Random(seed)
        self.store = Store()
        self.late: list[Request] = []
        self.record = Record()
        self.now_ns = 0
        self.supervisors = [Supervisor(f"s{n}", self.dice.randrange(10**15)) for n in range(count)]
        for each in self.supervisors:
            self.begin(each)

    def begin(self, each: Supervisor) -> None:
        """Begin a new life of a supervisor: what the one before has sent may still arrive."""
        if isinstance(each.waits, (Create, Remove)):
            self.late.append(each.waits)
        each.life = self._life(each)
        each.waits = next(each.life)
        each.wakes_ns = self.now_ns

    def _life(self, each: Supervisor) -> Life:
        candidacy = Candidacy(each.holder, founds=each.holder == "s0")
        ledger = yield from campaign(candidacy, lambda number, seen: term(number, each.holder), lambda problem: None)
        if ledger is not None:
            yield from lead(ledger, self.record, self.dice, each.holder)

    def step(self, each: Supervisor, faults: bool) -> None:
        """Answer what a supervisor waits for, somehow."""
        if each.life is None or each.waits is None:
            return
        try:
            if isinstance(each.waits, Pause):
                each.waits = each.life.send(self.now_ns + each.ahead_ns)
            else:
                each.waits = self._serve(each.life, each.waits, faults)
        except Fenced:
            self.begin(each)  # it ends with a line, and its next process is a candidate
            return
        except StopIteration:
            each.life = each.waits = None
        if isinstance(each.waits, Pause):
            each.wakes_ns = self.now_ns + each.waits.span_ns

    def _serve(self, life: Life, request: Request, faults: bool) -> Request | Pause:
        if faults and isinstance(request, Remove):
            self.store.remove_some(request, self.dice)
            return life.send(None)
        fate = self.dice.randrange(30) if faults else 0
        if fate == 27:  # applied, and the answer is lost
            self.store.answer(request)
        elif fate == 28 and isinstance(request, (Create, Remove)):  # it is applied at some later time
            self.late.append(request)
        if fate >= 27:
            return life.throw(Unavailable("the store does not answer"))
        return life.send(self.store.answer(request))

    def run(self, steps: int, faults: bool = True) -> None:
        """Perform this many steps, with short journals, so that entries are removed all the time."""
        with mock.patch.object(ledgers, "WHOLE_EVERY", 3):
            self._run(steps, faults)

    def _run(self, steps: int, faults: bool) -> None:
        for _ in range(steps):
            awake = [each for each in self.supervisors if each.wakes_ns <= self.now_ns]
            if not awake:
                self.now_ns = min(each.wakes_ns for each in self.supervisors)
                continue
            self.now_ns += self.dice.randrange(SECOND // 50)
            if self.late and self.dice.random() < 0.1:
                self.store.answer(self.late.pop(self.dice.randrange(len(self.late))))
            each = self.dice.choice(awake)
            chance = self.dice.random() if faults else 1.0
            if chance < 0.004:
                self.begin(each)
            elif chance < 0.03:
                each.wakes_ns = self.now_ns + self.dice.randrange(12 * SECOND)  # it is suspended, or very slow
            else:
                self.step(each, faults)

    def check(self) -> None:
        """Nothing that was acted upon is unknown to any later term, and the terms agree about the order."""
        decisions: list[Any] = []
        for number in sorted(self.record.begun):
            _, began_with = self.record.begun[number]
            assert began_with[: len(decisions)] == decisions, f"term {number} begins with another past"
            marks = [(decision["term"], decision["number"]) for decision in began_with]
            assert marks == sorted(dict.fromkeys(marks)), f"term {number} has a decision twice, or in another order"
            decisions = began_with
            for earlier, decision in self.record.acted:
                assert earlier >= number or decision in began_with, f"term {number} does not know {decision}"


@examples(divided_by=8)
@given(st.integers(0, 1 << 32), st.integers(1, 3))
def test_no_term_lacks_what_an_earlier_one_acted_upon_and_the_last_supervisor_leads(seed: int, count: int) -> None:
    world = World(seed, count)
    world.run(2000)
    world.check()
    survivor = world.dice.choice(world.supervisors) if world.record.begun else world.supervisors[0]
    acted = len(world.record.acted)
    world.supervisors = [survivor]
    world.run(800, faults=False)
    world.check()
    assert len(world.record.acted) > acted, "the only supervisor that lives leads"


def leader_of(store: Store, holder: str, number: int) -> Ledger:
    """Return a leader of that term, which has written its first entry."""
    candidacy = Candidacy(holder, founds=True)
    if number > 1:
        candidacy.saw(Sighting(term(number - 1, holder)), 0)
    else:
        candidacy.saw(None, 0)
    ledger: Ledger = store.run(campaign(candidacy, lambda n, seen: term(n, holder), lambda problem: None))
    store.run(ledger.append([], 5))
    return ledger


def test_a_seal_in_the_past_seals_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "WHOLE_EVERY", 3)
    store = Store()
    old = leader_of(store, "a", 1)
    for number in range(3):
        store.run(old.append([{"kind": "x", "number": number}], number))
    sealing = inherited(2)
    seen = store.answer(next(sealing))
    for number in range(3, 9):  # the candidate sleeps, and the entry last seen is removed
        store.answer(Remove(store.run(old.append([{"kind": "x", "number": number}], number))))
    assert seen[-1] not in store.objects
    request = sealing.send(seen)
    while True:
        try:
            request = sealing.send(store.answer(request))
        except StopIteration as end:
            assert [record["number"] for record in end.value.records] == list(range(9))
            break
    with pytest.raises(Fenced):
        store.run(old.append([{"kind": "y"}], 10))


def test_a_sealed_leader_writes_nothing_and_learns_by_whom() -> None:
    store = Store()
    old = leader_of(store, "a", 1)
    store.run(old.append([{"kind": "x"}], 6))
    new = leader_of(store, "b", 2)
    assert new.inherited.records == ({"kind": "x"},)
    with pytest.raises(Fenced, match="term 1 has ended: term 2 leads the job"):
        store.run(old.append([{"kind": "y"}], 7))
    store.run(new.sweep())
    with pytest.raises(Fenced, match="term 2"):
        store.run(old.append([{"kind": "y"}], 7))


def test_a_leader_that_wakes_up_and_does_not_know_its_last_entry_is_fenced() -> None:
    """The answer to its creation was lost; the successor has sealed the next place and removed what was before."""
    store = Store()
    old = leader_of(store, "a", 1)
    store.run(old.append([{"kind": "x"}], 6))
    lost = old.append([{"kind": "y"}], 7)
    store.answer(next(lost))
    new = leader_of(store, "b", 2)
    assert new.inherited.records == ({"kind": "x"}, {"kind": "y"})
    store.run(new.sweep())
    store.run(old.append([{"kind": "y"}], 7))  # it is a decision of the job, as the successor has it
    with pytest.raises(Fenced, match="term 1 has ended: term 2 leads the job"):
        store.run(old.append([{"kind": "z"}], 8))


@pytest.mark.parametrize("won", [True, False])
def test_entries_that_no_supervisor_has_removed_are_named(won: bool) -> None:
    store = Store()
    old = leader_of(store, "a", 1)
    store.run(old.append([{"kind": "x"}], 6))
    store.objects.pop(entry_name(1, 0))
    if won:
        store.run(elected(term(2, "b")))
    with pytest.raises(CorruptData, match=f"{journal_folder(1)} in the shared store lacks decisions of the job"):
        store.run(inherited(2, won))
    store.run(elected(term(3 if won else 2, "c")))
    with pytest.raises(Fenced):
        store.run(inherited(2, won))


@pytest.mark.parametrize("entries", [0, 1, WHOLE_EVERY - 1, WHOLE_EVERY, WHOLE_EVERY + 1, 3 * WHOLE_EVERY + 7])
def test_a_successor_has_every_decision_and_reads_few_entries(entries: int) -> None:
    store = Store()
    old = leader_of(store, "a", 1)
    for number in range(entries):
        store.answer(Remove(store.run(old.append([{"kind": "x", "number": number}], number))))
    assert len(store.answer(Names("journal"))) <= 2 * WHOLE_EVERY
    new = leader_of(store, "b", 2)
    assert [record["number"] for record in new.inherited.records] == list(range(entries))
    store.run(new.sweep())
    assert len(store.answer(Names("journal"))) == 3, "the seal, the entry before it, and the first of the new term"


def test_checkpoints_do_not_pile_up_in_the_store() -> None:
    store = Store()
    old = leader_of(store, "a", 1)
    for epoch in range(2 * WHOLE_EVERY):
        store.run(old.append([{"kind": "checkpoint", "epoch": epoch}, {"kind": "phase", "at": epoch}], epoch))
    kept = leader_of(store, "b", 2).inherited.records
    assert len([record for record in kept if record["kind"] == "checkpoint"]) <= WHOLE_EVERY + 2
    assert [record["at"] for record in kept if record["kind"] == "phase"] == list(range(2 * WHOLE_EVERY))


def watched(sightings: Sequence[tuple[Sighting | None, float]], hears: bool = True, **facts: Any) -> Candidacy:
    """Return a candidate that has seen these, each at that time in seconds, and hears hosts or not."""
    candidacy = Candidacy("me", **facts)
    for sighting, at_s in sightings:
        if candidacy.standing is Standing.WATCHING:
            candidacy.saw(sighting, round(at_s * SECOND), hears)
    return candidacy


def at(place: int, closing: str = "", holder: str = "other") -> Sighting:
    return Sighting(term(3, holder), place, Entry(closing=closing, at_ns=place * SECOND))


def test_a_candidate_stands_after_the_silence_and_not_before() -> None:
    looks = [(at(7), second / 2) for second in range(10)]
    assert LOOK_NS < SILENCE_NS / 4
    assert watched(looks).standing is Standing.WATCHING
    candidacy = watched([*looks, (at(7), 5.0)])
    assert (candidacy.standing, candidacy.term) == (Standing.ELECTING, 4)
    assert SILENCE_NS == 5 * SECOND


@pytest.mark.parametrize("closing", ["", RESIGNED, DEAF])
def test_a_candidate_that_hears_no_host_leaves_the_election_to_others_first(closing: str) -> None:
    looks = [(at(7, closing), second) for second in range(10)]
    assert watched(looks, hears=False).standing is Standing.WATCHING
    assert watched([*looks, (at(7, closing), 10.0)], hears=False).standing is Standing.ELECTING


def test_an_entry_begins_the_silence_again() -> None:
    assert watched([(at(7), 0), *((at(8), 3 + n / 2) for n in range(10))]).standing is Standing.WATCHING


@pytest.mark.parametrize(("unbegun", "patience_s"), [(0, 5), (1, 10), (2, 20), (UNBEGUN_MAX, 160)])
def test_each_supervisor_that_was_deposed_before_it_led_gives_the_next_one_more_time(
    unbegun: int, patience_s: int
) -> None:
    elected = Sighting(term(7, "other"), unbegun=unbegun)
    looks: list[tuple[Sighting | None, float]] = [(elected, second) for second in range(patience_s)]
    assert watched(looks).standing is Standing.WATCHING
    assert watched([*looks, (elected, patience_s)]).standing is Standing.ELECTING


def test_a_candidate_counts_the_terms_that_never_began() -> None:
    store = Store()
    old = leader_of(store, "a", 1)
    store.run(old.append([{"kind": "x"}], 6))
    for number in range(2, 5):
        store.run(elected(term(number, f"s{number}")))
        assert store.run(looked(None)).unbegun == number - 2
        store.run(inherited(number))
    ledger = Ledger(4, store.run(inherited(4)))
    store.run(ledger.append([], 8))
    store.run(ledger.append([], 9))
    assert store.run(looked(None)).unbegun == 0
    store.run(elected(term(5, "s5")))
    assert store.run(looked(None)).unbegun == 0, "term 4 has led"


@pytest.mark.parametrize("seed", range(3))
def test_candidates_of_a_slow_store_do_not_depose_each_other_for_ever(seed: int) -> None:
    """The journal takes longer to read than a leader may be silent."""
    world = World(seed, 4)
    old, *candidates = world.supervisors
    ledger = leader_of(world.store, old.holder, 1)
    for number in range(40):
        world.store.run(ledger.append([{"kind": "x", "number": number}], number))
    for _ in range(1500):
        each = min(candidates, key=lambda one: one.wakes_ns)
        world.now_ns = max(world.now_ns, each.wakes_ns)
        world.step(each, faults=False)
        if not isinstance(each.waits, Pause):
            each.wakes_ns = world.now_ns + world.dice.randrange(SECOND // 4, SECOND // 2)
    assert world.record.begun, "one of them leads"


def test_an_outage_of_the_store_is_no_silence_of_the_leader() -> None:
    assert watched([(at(7), 0), (at(7), 600), (at(7), 600.5)]).standing is Standing.WATCHING
    slow = watched([(at(7), 3 * n) for n in range(6)])
    assert slow.standing is Standing.ELECTING, "a slow store delays a successor and does not prevent it"


@pytest.mark.parametrize(
    ("sighting", "facts", "standing"),
    [
        (None, {}, Standing.WATCHING),
        (None, {"founds": True}, Standing.ELECTING),
        (at(7, holder="me"), {}, Standing.ELECTING),
        (at(7, RESIGNED), {}, Standing.ELECTING),
        (at(7, RESIGNED), {"hears": False}, Standing.WATCHING),
        (at(7, RESIGNED, "me"), {}, Standing.ELECTING),
        (at(7, DEAF), {}, Standing.ELECTING),
        (at(7, DEAF), {"hears": False}, Standing.WATCHING),
        (at(7, DEAF, "me"), {}, Standing.ELECTING),
        (at(7, DEAF, "me"), {"hears": False}, Standing.WATCHING),
        (at(7, holder="me"), {"hears": False}, Standing.ELECTING),
        (None, {"founds": True, "hears": False}, Standing.ELECTING),
        (at(7, STOPPED), {}, Standing.WATCHING),
        (at(7, STOPPED, "me"), {}, Standing.WATCHING),
        (at(7, STOPPED), {"resumes": (3, 7)}, Standing.ELECTING),
        (at(8), {"resumes": (3, 7)}, Standing.WATCHING),
        (at(7, ENDED), {}, Standing.OVER),
        (at(7, ENDED, "me"), {"resumes": (3, 7)}, Standing.OVER),
    ],
)
def test_what_one_look_decides(sighting: Sighting | None, facts: dict[str, Any], standing: Standing) -> None:
    assert watched([(sighting, 0)], **facts).standing is standing


def test_a_stopped_job_is_left_alone_for_as_long_as_it_is() -> None:
    assert watched([(at(7, STOPPED), n / 2) for n in range(100)]).standing is Standing.WATCHING


def test_the_time_of_the_job_is_at_least_what_any_entry_proves() -> None:
    assert watched([(at(7), 1), (at(8), 1.5), (at(9), 3)]).offset_ns_min == 6.5 * SECOND


def test_every_state_is_left_and_no_other_transition_is_taken() -> None:
    assert {state for state, _ in STANDING_TABLE} == set(Standing) - {Standing.DEPOSED, Standing.OVER}
    with pytest.raises(InvariantViolation, match="no such transition"):
        Candidacy("me").step("win")


def test_what_has_been_seen_is_not_read_again() -> None:
    store = Store()
    leader_of(store, "a", 1)
    seen = store.run(looked(None))
    requests: list[Request] = []
    procedure = looked(seen)
    answer: Any = None
    try:
        while True:
            requests.append(procedure.send(answer))
            answer = store.answer(requests[-1])
    except StopIteration as end:
        assert end.value is seen
    assert requests == [Names(journal_folder(1)), Names("terms")]


@pytest.mark.parametrize("name", [term_name(1), entry_name(1, 0)])
def test_a_damaged_object_is_never_used(name: str) -> None:
    store = Store()
    leader_of(store, "a", 1)
    store.objects[name] = store.objects[name][:-1] + b"\xff"
    with pytest.raises(CorruptData, match=f"{name} in the shared store is damaged"):
        store.run(looked(None))


@pytest.mark.parametrize("before", [1, WHOLE_EVERY - 1, WHOLE_EVERY])
def test_a_change_replaces_all_decisions_and_a_successor_leads_the_next_version(before: int) -> None:
    store = Store()
    old = leader_of(store, "a", 1)
    for number in range(1, before):
        store.run(old.append([{"kind": "x", "number": number}], number))
    store.answer(Remove(store.run(old.change([{"kind": "changed"}], "next", "graph", 5))))
    later = [{"kind": "y", "number": number} for number in range(2 * WHOLE_EVERY)]
    for record in later:
        store.answer(Remove(store.run(old.append([record], 6))))
    assert len(store.answer(Names("journal"))) <= 2 * WHOLE_EVERY
    new = leader_of(store, "b", 2)
    assert new.inherited.records == ({"kind": "changed"}, *later)
    assert (new.inherited.job, new.inherited.graph) == ("next", "graph")


def test_a_change_that_a_successor_has_sealed_off_has_not_happened() -> None:
    store = Store()
    old = leader_of(store, "a", 1)
    store.run(old.append([{"kind": "x"}], 6))
    new = leader_of(store, "b", 2)
    with pytest.raises(Fenced, match="term 1 has ended: term 2 leads the job"):
        store.run(old.change([{"kind": "changed"}], "next", "graph", 7))
    assert new.inherited.records == ({"kind": "x"},) and new.inherited.job == ""
    assert old.records == ({"kind": "x"},) and old.job == ""


def test_a_change_whose_answer_was_lost_is_repeated() -> None:
    store = Store()
    old = leader_of(store, "a", 1)
    lost = old.change([{"kind": "changed"}], "next", "graph", 7)
    store.answer(next(lost))
    store.run(old.change([{"kind": "changed"}], "next", "graph", 7))
    assert old.place == 2 and leader_of(store, "b", 2).inherited.records == ({"kind": "changed"},)
