"""A process notes where its neighbours are, and beats: often while it does something, rarely where nothing is new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from causal import commands
from causal.task.vitals import Vitals
from operators.runtime.hot_standby import Neighbour
from operators.runtime.membership import (
    PHASES_AFTER_NS,
    Commanded,
    Load,
    Membership,
    Place,
    Reported,
    SendReport,
    Tick,
    rest_ms,
)
from tests.exhaustive.worlds import PAIR

MS = 1_000_000


def _placed(remote: str, *endpoints: str) -> list[str]:
    """Return the places of its source that the sink notes, as that moves."""
    member = Membership("w2", 1, "ipc://w2", PAIR, 60, Vitals, remote)
    member.handle(Commanded(commands.Promote("sink", 1, 0, (), {})), 0)
    acts = []
    for incarnation, endpoint in enumerate(endpoints, 1):
        acts += member.handle(Commanded(commands.Peer("source", endpoint, incarnation)), 0)
    return [act.endpoint for act in acts if isinstance(act, Place)]


def test_a_neighbour_that_moves_to_this_host_is_heard_from_no_other_one_any_more() -> None:
    there, here = "tcp://b@10.0.0.2:7", "ipc://w3"
    assert _placed("tcp://10.0.0.1:6", there, here) == [there, here]


def test_on_one_machine_no_neighbour_has_a_place() -> None:
    assert _placed("", "ipc://w1", "ipc://w3") == []


def test_a_hot_standby_hears_where_the_neighbours_downstream_are() -> None:
    member = Membership("w2", 1, "ipc://w2", PAIR, 60, Vitals)
    follow = commands.Follow("source", 3, (), 1, {"sink": ("ipc://w3", 2)})
    [load] = [act for act in member.handle(Commanded(follow), 0) if isinstance(act, Load)]
    assert load.neighbours == (Neighbour(1, "ipc://w3", 2),)


@pytest.mark.parametrize("follows, together", [(1, True), (0, False)])
def test_the_phases_of_a_hot_standby_that_takes_over_are_reported_together(follows: int, together: bool) -> None:
    member = Membership("w2", 1, "ipc://w2", PAIR, 60, Vitals)
    member.handle(Commanded(commands.Follow("sink", 0, (), follows)), 0)

    def reports(acts: list[Any]) -> list[str]:
        return [act.facts.get("phase", act.kind) for act in acts if isinstance(act, SendReport)]

    sent = reports(member.handle(Commanded(commands.Promote("sink", 2, 0, (), {})), 0))
    sent += reports(member.handle(Reported("phase", {"phase": "collected", "at_ns": 1, "detail": 0}), 1))
    assert sent == ([] if together else ["promoted", "collected"])
    if together:
        assert not reports(member.handle(Tick(), PHASES_AFTER_NS - 1))
        assert reports(member.handle(Tick(), PHASES_AFTER_NS)) == ["promoted", "collected", "beat"]
        member.handle(Reported("phase", {"phase": "replayed", "at_ns": 1, "detail": 0}), 2)
    lost = reports(member.handle(Reported("phase", {"phase": "lost", "at_ns": 1, "detail": 0}), 3))
    assert lost == (["replayed", "lost"] if together else ["lost"]), "what waits is not overtaken"


def counting(value: float, name: str = "records_in") -> Vitals:
    return Vitals("running", counters={name: value})


RESTING = [0, 500, 1000, 1500]
BEATS: dict[str, tuple[Any, bool, list[int]]] = {
    "beats that say the same are rarer": (lambda ms: Vitals(), False, RESTING),
    "time that passes is nothing new": (lambda ms: counting(ms / 1000, "idle_s"), False, RESTING),
    "messages that change nothing bring no beat": (lambda ms: Vitals(), True, RESTING),
    "a task that gets on beats at every heartbeat": (lambda ms: counting(ms // 10), True, list(range(0, 2000, 100))),
    "what is new comes with the next heartbeat": (
        lambda ms: counting(7) if ms >= 650 else Vitals(), False, [0, 500, 650, 1150, 1650],
    ),
}  # fmt: skip


class Beating:
    """A standby or task with the vitals of each millisecond, which beats every 100 ms, or 500 where nothing is new."""

    def __init__(self, vitals_at: Callable[[int], Vitals], works: bool = False) -> None:
        self._now_ms = 0
        self._works = works
        self.beats_ms: list[int] = []
        self.member = Membership("w2", 1, "ipc://w2", PAIR, 100, lambda: vitals_at(self._now_ms), rest_ms=500)

    def until(self, end_ms: int) -> list[int]:
        """Return when it beats."""
        while self._now_ms < end_ms:
            if self._works or self._now_ms == 650:
                self.member.stir(self._now_ms * MS)
            if self.member.handle(Tick(), self._now_ms * MS):
                self.beats_ms.append(self._now_ms)
            self._now_ms += 1
        return self.beats_ms


@pytest.mark.parametrize("name", BEATS)
def test_a_process_beats_often_where_something_is_new(name: str) -> None:
    vitals_at, works, beats_ms = BEATS[name]
    assert Beating(vitals_at, works).until(2000) == beats_ms


def test_a_beat_that_is_asked_for_comes_although_it_says_nothing_new() -> None:
    process = Beating(lambda ms: Vitals())
    process.until(50)
    process.member.beat_due_ns = 0
    assert process.until(600) == [0, 50, 550]


@given(st.integers(1, 1000), st.integers(3, 10**6))
def test_several_beats_fit_into_the_silence_that_counts_as_death(heartbeat_ms: int, timeout_ms: int) -> None:
    assume(timeout_ms >= 3 * heartbeat_ms)
    rests_ms = rest_ms(heartbeat_ms, timeout_ms)
    assert heartbeat_ms <= rests_ms <= 5 * heartbeat_ms and 3 * rests_ms <= timeout_ms
