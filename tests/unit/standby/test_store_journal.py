"""Decisions in the shared store: they wait while it is unavailable, and are refused once another supervisor leads."""

from __future__ import annotations

import select
from pathlib import Path

import pytest

from causal.errors import Fenced, Unavailable
from causal.storage.shared import Depot
from standby.candidate.election import JobClock
from standby.leadership.ledger import Ledger
from standby.leadership.term_journal import Inherited, inherited, looked
from standby.leadership.terms import ENDED, RESIGNED, Entry
from standby.storage import store_journal
from standby.storage.store_journal import StoreJournal, perform
from tests.unit.standby.stage import wait_for

pytest.importorskip("obstore", reason="the client of the shared store (extra `hosts`) is not installed")


class Flaky(Depot):
    """A store that can be unavailable, before or after it has created an object."""

    failing = ""

    def create(self, name: str, data: bytes | memoryview, durable: bool = True) -> bool:
        if self.failing == "before":
            raise Unavailable("the store does not answer")
        new = super().create(name, data)
        if self.failing == "after":
            raise Unavailable("the answer was lost")
        return new


@pytest.fixture
def depot(tmp_path: Path) -> Flaky:
    return Flaky(f"file://{tmp_path}/store", "job/run")


def journal_of(depot: Depot, term: int = 1, records: Inherited | None = None) -> StoreJournal:
    return StoreJournal(depot, Ledger(term, records or Inherited()), JobClock(7).now_ns)


def read(depot: Depot, term: int = 2) -> list[object]:
    return [record["n"] for record in perform(inherited(term), depot).records]


def settled(journal: StoreJournal, written: int) -> None:
    wait_for("it is written", lambda: journal.written == written)


@pytest.mark.parametrize("failing", ["before", "after"])
def test_decisions_wait_for_the_store_and_are_written_once(depot: Flaky, failing: str) -> None:
    journal = journal_of(depot)
    depot.failing = failing
    for number in range(5):
        journal.append([{"kind": "x", "n": number}])
    wait_for("it says what it waits for", lambda: journal.problem)
    assert journal.written == 0
    depot.failing = ""
    settled(journal, 5)
    assert journal.problem == ""
    assert select.select([journal.wake], [], [], 10)[0]
    journal.check()
    journal.close()
    assert read(depot) == [0, 1, 2, 3, 4]


def test_a_leader_that_decides_nothing_shows_that_it_lives(depot: Flaky) -> None:
    journal = journal_of(depot)
    wait_for("two beats", lambda: len(depot.names("journal")) >= 3)
    journal.close()
    assert not any(Entry.read(name, depot.read(name)).records for name in depot.names("journal"))


def test_a_sealed_journal_refuses_what_waits_and_says_who_leads(depot: Flaky) -> None:
    journal = journal_of(depot)
    journal.append([{"kind": "x", "n": 1}])
    settled(journal, 1)
    assert read(depot) == [1]
    journal.append([{"kind": "x", "n": 2}])
    wait_for("it notices", lambda: not journal.is_alive())
    with pytest.raises(Fenced, match="term 1 has ended: term 2 leads the job"):
        journal.check()
    assert journal.written == 1
    journal.close()
    assert read(depot) == [1]


def test_the_end_of_the_job_is_the_last_entry(depot: Flaky) -> None:
    journal = journal_of(depot)
    journal.append([{"kind": "ended", "n": 0, "status": 0, "reason": ""}])
    wait_for("it has ended", lambda: not journal.is_alive())
    seen = perform(looked(None), depot)
    assert seen is None, "no term was created in this test"
    name = depot.names("journal")[-1]
    assert Entry.read(name, depot.read(name)).closing == ENDED
    journal.close()


def test_a_leader_that_leaves_writes_what_waits_with_the_reason(depot: Flaky) -> None:
    journal = journal_of(depot)
    journal.append([{"kind": "x", "n": 3}])
    assert journal.leave(RESIGNED)
    name = depot.names("journal")[-1]
    assert Entry.read(name, depot.read(name)).closing == RESIGNED
    journal.close()
    assert read(depot) == [3]


def test_a_leader_that_leaves_without_a_store_does_not_wait_for_it(depot: Flaky) -> None:
    journal = journal_of(depot)
    depot.failing = "before"
    assert not journal.leave(RESIGNED)
    journal.close()
    wait_for("its thread ends", lambda: not journal.is_alive())


def test_too_many_decisions_that_wait_end_the_supervisor(depot: Flaky, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_journal, "WAITING_MAX", 3)
    journal = journal_of(depot)
    depot.failing = "before"
    with pytest.raises(Unavailable, match="decisions wait to be written"):
        for number in range(50):
            journal.append([{"kind": "x", "n": number}])
    journal.close()


@pytest.mark.parametrize("failing", ["", "before", "after"])
def test_a_change_follows_what_waits_and_is_one_entry(depot: Flaky, failing: str) -> None:
    journal = journal_of(depot)
    depot.failing = failing
    journal.append([{"kind": "x", "n": 1}])
    journal.append([{"kind": "x", "n": 2}])
    journal.change([{"kind": "changed", "n": 3}], "next", "graph")
    if failing:
        wait_for("it says what it waits for", lambda: journal.problem)
        assert journal.written == 0
    depot.failing = ""
    settled(journal, 3)
    journal.append([{"kind": "y", "n": 4}])
    settled(journal, 4)
    journal.close()
    assert perform(inherited(2), depot).job == "next" and read(depot) == [3, 4]


def test_a_leader_that_leaves_while_it_changes_the_job_has_changed_it(depot: Flaky) -> None:
    journal = journal_of(depot)
    journal.change([{"kind": "changed", "n": 3}], "next", "graph")
    assert journal.leave(RESIGNED)
    assert read(depot) == [3]
