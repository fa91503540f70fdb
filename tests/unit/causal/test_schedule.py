"""A log written live is read back by the same questions, and any other question is a divergence."""

from __future__ import annotations

import pytest

from causal.determinants import Barrier, Call, Clock, Order, Timer
from causal.errors import InvariantViolation, ReplayDivergence
from causal.log import DeterminantLog, LogDelta
from causal.schedule import Schedule
from causal.services import CausalServices


class Clockwork:
    """A clock that is told what to show, and entropy that counts."""

    def __init__(self, *shown: int) -> None:
        self.shown = list(shown)
        self.drawn = 0

    def wall_ns(self) -> int:
        return self.shown.pop(0) if len(self.shown) > 1 else self.shown[0]

    def entropy(self) -> bytes:
        self.drawn += 1
        return bytes([self.drawn]) * 16


def recorded() -> tuple[DeterminantLog, list[object]]:
    schedule = Schedule(DeterminantLog(0), 0, "count/0")
    services = CausalServices(schedule, Clockwork(100, 90, 300))
    schedule.record_order(0, 5)
    answers: list[object] = [services.now_ns(), services.now_ns(), services.seed(), services.call(lambda: b"live")]
    schedule.record(Barrier(1))
    schedule.advance(1)
    answers += [services.now_ns(), services.seed()]
    return schedule.log, answers


def copy(log: DeterminantLog) -> Schedule:
    own = DeterminantLog(0)
    for delta in log.deltas({}):
        own.merge(delta)
    return Schedule(own, 0, "count/0")


def test_what_was_answered_live_is_answered_again() -> None:
    log, answers = recorded()
    schedule = copy(log)
    live = Clockwork(7)
    services = CausalServices(schedule, live)
    assert schedule.take(Order) == Order(0, 5)
    found: list[object] = [services.now_ns(), services.now_ns(), services.seed(), services.call(lambda: b"again")]
    schedule.take(Barrier)
    schedule.advance(1)
    found += [services.now_ns(), services.seed()]
    assert found == answers
    assert live.drawn == 0 and schedule.exhausted()


def test_the_clock_never_goes_back_and_not_after_a_replay_either() -> None:
    log, answers = recorded()
    assert answers[:2] == [100, 100]
    schedule = copy(log)
    services = CausalServices(schedule, Clockwork(7))
    while not schedule.exhausted():
        told = schedule.peek()
        schedule.take(type(told))
        if isinstance(told, Barrier):
            schedule.advance(told.epoch)
    assert services.now_ns() == 300


def test_another_question_than_before_is_a_divergence_that_names_task_and_place() -> None:
    schedule = copy(recorded()[0])
    schedule.take(Order)
    with pytest.raises(ReplayDivergence, match=r"count/0, epoch 0, byte 2 .* asks for call, the log has clock"):
        CausalServices(schedule, Clockwork(1)).call(lambda: b"")


def test_a_log_that_ends_before_its_barrier_cannot_be_left() -> None:
    schedule = copy(recorded()[0])
    with pytest.raises(ReplayDivergence, match="before the log of epoch 0 ends"):
        schedule.advance(1)


def test_nothing_is_recorded_while_there_is_something_to_replay() -> None:
    schedule = copy(recorded()[0])
    with pytest.raises(InvariantViolation):
        schedule.record(Timer(1))


def test_a_task_whose_own_log_is_damaged_stops() -> None:
    log = DeterminantLog(0)
    log.merge(LogDelta(0, 0, 0, b"\x30"))
    with pytest.raises(ReplayDivergence, match="cannot be read"):
        Schedule(log, 0, "count/0").peek()


def test_peeking_changes_nothing() -> None:
    schedule = copy(recorded()[0])
    schedule.take(Order)
    assert schedule.peek() == schedule.peek() == Clock(100)
    assert schedule.take(Clock) == Clock(100)


def test_without_recording_nothing_is_remembered() -> None:
    schedule = Schedule(DeterminantLog(0), 0, "count/0", recording=False)
    schedule.record(Call(b"x"))
    schedule.record_order(0, 1)
    assert schedule.log.size == 0 and not schedule.bytes_by_kind
