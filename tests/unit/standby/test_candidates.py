"""Marks of candidates: a living one is seen for as long as it lives, and a dead one leaves nothing in the store."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from causal.records.values import encode
from standby.leadership.candidates import EXPIRY_NS, FRESH_NS, RENEW_NS, Candidate, Candidates, Presence
from standby.leadership.terms import CANDIDATES
from tests.unit.standby.test_leadership import Store

B, C = Candidate("supervisor-b", "tcp://b:1"), Candidate("", "tcp://c:1")


def names(store: Store) -> list[str]:
    return sorted(name for name in store.objects if name.startswith(f"{CANDIDATES}/"))


def seen(candidates: Candidates, now_ns: int) -> list[Candidate]:
    return [candidate for candidate, _ in candidates.waiting(now_ns)]


@given(st.lists(st.integers(1, RENEW_NS), min_size=1, max_size=30))
def test_a_candidate_that_renews_its_mark_is_seen_all_the_time_and_has_one(waits_ns: list[int]) -> None:
    store, presence, leader = Store(), Presence("b"), Candidates("a")
    now_ns = renewed_ns = 0
    store.run(presence.renew(B))
    for wait_ns in waits_ns:
        now_ns += wait_ns
        if now_ns - renewed_ns >= RENEW_NS:
            store.run(presence.renew(B))
            renewed_ns = now_ns
        store.run(leader.look(now_ns))
        assert seen(leader, now_ns) == [B]
        assert len(names(store)) == 1


def test_the_mark_of_a_dead_candidate_expires_and_is_removed() -> None:
    store, leader = Store(), Candidates("a")
    store.run(Presence("b").renew(B))
    store.run(Presence("c").renew(C))
    store.run(leader.look(100))
    assert seen(leader, 100) == [C, B]
    store.run(Presence("c").renew(C))  # its next process is the same candidate
    store.run(leader.look(EXPIRY_NS))
    assert [candidate for candidate, _ in leader.waiting(EXPIRY_NS + 99)] == [C, B]
    assert seen(leader, EXPIRY_NS + 100) == [C], "also while the store cannot be asked"
    store.run(leader.look(EXPIRY_NS + 100))
    assert [name.split("/")[1] for name in names(store)] == ["c"]


def test_a_candidate_whose_mark_was_removed_comes_back() -> None:
    store, leader, presence = Store(), Candidates("a"), Presence("b")
    store.run(presence.renew(B))
    store.run(leader.look(0))
    store.run(leader.look(EXPIRY_NS))
    assert names(store) == [] and seen(leader, EXPIRY_NS) == []
    store.run(presence.renew(B))
    store.run(leader.look(EXPIRY_NS + 1))
    assert seen(leader, EXPIRY_NS + 1) == [B]


def test_a_leader_is_no_candidate_and_one_that_ends_leaves_nothing() -> None:
    store, presence = Store(), Presence("b")
    store.run(presence.renew(B))
    own = Candidates("b")
    store.run(own.look(0))
    assert seen(own, 0) == []
    store.run(presence.withdraw())
    assert names(store) == []


def test_a_candidate_hears_hosts_while_its_newest_mark_says_so_and_is_not_old() -> None:
    store, presence, leader = Store(), Presence("b"), Candidates("a")
    store.run(Presence("c").renew(C))
    for hears, at_ns in ((True, 100), (False, 200), (True, 300)):
        mark = replace(B, hears=hears)
        store.run(presence.renew(mark))
        store.run(leader.look(at_ns))
        assert leader.hearing(at_ns) == (mark if hears else None)
    assert leader.hearing(300 + FRESH_NS - 1)
    assert leader.hearing(300 + FRESH_NS) is None, "a candidate that lives has renewed it"
    assert FRESH_NS > RENEW_NS


def test_a_mark_of_the_version_before_says_nothing_about_hosts() -> None:
    store, leader = Store(), Candidates("a")
    store.objects[f"{CANDIDATES}/b/0000000001"] = encode({"name": B.name, "listen": B.listen})
    store.run(leader.look(0))
    assert seen(leader, 0) == [B] and leader.hearing(0) is None


def test_a_damaged_mark_is_removed() -> None:
    store, leader = Store(), Candidates("a")
    store.objects[f"{CANDIDATES}/b/0000000001"] = b"\xc1"
    store.run(leader.look(0))
    assert names(store) == [] and seen(leader, 0) == []
