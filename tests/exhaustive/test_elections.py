"""Two candidates and a leader, in every order of their requests: what one acts upon, no later one lacks."""

from __future__ import annotations

from functools import partial

import pytest

from standby.leadership import ledger, term_journal
from standby.leadership.term_journal import Create, Inherited, Names, Procedure, read_back
from standby.leadership.terms import entry_name, journal_folder
from tests.exhaustive.elections import Election, Verdict, candidate
from tests.members import campaign


def explored(losses: int = 0, decisions: int = 1, hasty: bool = False, names: str = "abc") -> Verdict:
    return Election({name: partial(candidate, name, decisions, hasty) for name in names}, losses).explore()


@pytest.mark.parametrize(("names", "losses"), [("ab", 1), campaign("ab", 2), campaign("abc", 0)])
def test_no_order_of_requests_loses_a_decision_or_leaves_the_job_without_a_leader(names: str, losses: int) -> None:
    verdict = explored(losses, names=names)
    assert not verdict.breach, verdict.breach
    assert verdict.states > 300 and verdict.ends and verdict.fenced
    assert verdict.terms == set(range(1, len(names) + 1))


@pytest.mark.parametrize("losses", [0, campaign(1)])
def test_nothing_is_lost_when_the_leader_leaves_the_job_because_it_hears_no_host(losses: int) -> None:
    programs = {"a": partial(candidate, "a", 1, leaves=True), "b": partial(candidate, "b", 1)}
    verdict = Election(programs, losses).explore()
    assert not verdict.breach, verdict.breach
    assert verdict.ends and verdict.fenced and verdict.terms == {1, 2}


def test_a_leader_that_acts_before_it_has_written_is_found() -> None:
    assert "lacks" in explored(hasty=True, names="ab").breach


def test_a_successor_that_seals_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsealed(number: int) -> Procedure[Inherited]:
        for earlier in range(number - 1, 0, -1):
            entries = yield Names(journal_folder(earlier))
            if entries:
                return (yield from read_back(earlier, len(entries) - 1))
        return Inherited()

    monkeypatch.setattr(term_journal, "inherited", unsealed)
    assert "lacks" in explored(names="ab").breach


def test_a_leader_that_takes_any_entry_for_its_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def appended(term: int, place: int, data: bytes) -> Procedure[None]:
        yield Create(entry_name(term, place), data)

    monkeypatch.setattr(ledger, "appended", appended)
    assert "lacks" in explored(names="ab").breach


def test_an_election_whose_answer_is_lost_and_counts_as_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def elected(term: object) -> Procedure[bool]:
        return bool((yield Create(term_journal.term_name(term.number), term.data())))  # type: ignore[attr-defined]

    monkeypatch.setattr("tests.exhaustive.elections.elected", elected)
    assert "no supervisor leads" in explored(1, names="a").breach
