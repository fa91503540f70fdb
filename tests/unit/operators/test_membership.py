"""A process notes where its neighbours are, and beats: often while it does something, rarely where nothing is new."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from causal import commands
from causal.task.vitals import Vitals
from operators.runtime.membership import Commanded, Membership, Place, Tick, rest_ms
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


class Beating:
    """A standby or task whose vitals are at hand; `beats_ms` says when it beat, looking at every millisecond."""

    def __init__(self, heartbeat_ms: int = 100, rests_ms: int = 500) -> None:
        self.vitals = Vitals()
        self.beats_ms: list[int] = []
        self.member = Membership("w2", 1, "ipc://w2", PAIR, heartbeat_ms, lambda: self.vitals, rest_ms=rests_ms)

    def until(self, start_ms: int, end_ms: int, works: bool = False) -> None:
        """Advance the time; `works`: the loop does something at each millisecond."""
        for now_ms in range(start_ms, end_ms):
            if works:
                self.member.stir(now_ms * MS)
            if self.member.handle(Tick(), now_ms * MS):
                self.beats_ms.append(now_ms)


def test_beats_that_say_the_same_are_rarer() -> None:
    process = Beating()
    process.until(0, 2000)
    assert process.beats_ms == [0, 500, 1000, 1500]


def test_time_that_passes_is_nothing_new() -> None:
    process = Beating()
    for start_ms in range(0, 2000, 50):
        process.vitals = Vitals("running", counters={"idle_s": start_ms / 1000, "records_in": 7})
        process.until(start_ms, start_ms + 50)
    assert process.beats_ms == [0, 500, 1000, 1500]


def test_what_is_new_comes_with_the_next_heartbeat() -> None:
    process = Beating()
    process.until(0, 650)
    process.vitals = Vitals("running", counters={"records_in": 7})
    process.until(650, 651, works=True)
    process.until(651, 2000)
    assert process.beats_ms == [0, 500, 650, 1150, 1650]


def test_a_task_that_gets_on_beats_at_every_heartbeat() -> None:
    process = Beating()
    for start_ms in range(0, 1000, 10):
        process.vitals = Vitals("running", counters={"records_in": start_ms})
        process.until(start_ms, start_ms + 10, works=True)
    assert process.beats_ms == list(range(0, 1000, 100))


def test_messages_that_change_nothing_bring_no_beat() -> None:
    process = Beating()
    process.until(0, 2000, works=True)
    assert process.beats_ms == [0, 500, 1000, 1500]


def test_a_beat_that_is_asked_for_comes_although_it_says_nothing_new() -> None:
    process = Beating()
    process.until(0, 50)
    process.member.beat_due_ns = 0
    process.until(50, 600)
    assert process.beats_ms == [0, 50, 550]


@given(st.integers(1, 1000), st.integers(3, 10**6))
def test_several_beats_fit_into_the_silence_that_counts_as_death(heartbeat_ms: int, timeout_ms: int) -> None:
    assume(timeout_ms >= 3 * heartbeat_ms)
    rests_ms = rest_ms(heartbeat_ms, timeout_ms)
    assert heartbeat_ms <= rests_ms <= 5 * heartbeat_ms and 3 * rests_ms <= timeout_ms
