"""A log written live is read back by the same questions, and any other question is a divergence."""

from __future__ import annotations

import pytest

from causal.determinants import ANSWER_BYTES_MAX, Barrier, Call, Clock, Order, Run, User, register_kind
from causal.errors import InvariantViolation, OperatorFailed, ReplayDivergence
from causal.logs.log import DeterminantLog, LogDelta
from causal.task.determinant_cursor import DeterminantCursor
from causal.task.recovery import Recovery, RecoveryStep, State
from causal.task.services import CausalServices

register_kind("test-price", 101)
register_kind("test-rate", 102)


class Clockwork:
    """A clock that a test sets, and entropy that counts."""

    def __init__(self, *shown: int) -> None:
        self.shown = list(shown)
        self.drawn = 0

    def wall_ns(self) -> int:
        return self.shown.pop(0) if len(self.shown) > 1 else self.shown[0]

    def entropy(self) -> bytes:
        self.drawn += 1
        return bytes([self.drawn]) * 16


def recovery(*steps: RecoveryStep) -> Recovery:
    """Return the recovery of a task that has taken these steps."""
    taken = Recovery("count/0")
    for step in steps:
        taken.step(step, 0)
    return taken


REPLAYED = recovery(RecoveryStep.STARTED, RecoveryStep.COLLECTED)
SHADOWED = recovery(RecoveryStep.SHADOWED)
LIVE = recovery(RecoveryStep.STARTED, RecoveryStep.COLLECTED, RecoveryStep.REPLAYED)


def recorded() -> tuple[DeterminantLog, list[object]]:
    schedule = DeterminantCursor(DeterminantLog(0), 0, "count/0")
    services = CausalServices(schedule, Clockwork(100, 90, 300), LIVE)
    schedule.record_order(0, 5)
    answers: list[object] = [services.now_ns(), services.now_ns(), services.seed(), services.call(lambda: b"live")]
    schedule.record(Barrier(1))
    schedule.advance(1)
    answers += [services.now_ns(), services.seed()]
    return schedule.log, answers


def copy(log: DeterminantLog) -> DeterminantCursor:
    own = DeterminantLog(0)
    for delta in log.deltas({}):
        own.merge(delta)
    return DeterminantCursor(own, 0, "count/0")


def test_what_was_answered_live_is_answered_again() -> None:
    log, answers = recorded()
    schedule = copy(log)
    live = Clockwork(7)
    services = CausalServices(schedule, live, LIVE)
    assert schedule.take(Order) == Order(0, 5)
    replayed: list[object] = [services.now_ns(), services.now_ns(), services.seed(), services.call(lambda: b"again")]
    schedule.take(Barrier)
    schedule.advance(1)
    replayed += [services.now_ns(), services.seed()]
    assert replayed == answers
    assert live.drawn == 0 and schedule.exhausted()


def test_the_clock_never_goes_back_and_not_after_a_replay_either() -> None:
    log, answers = recorded()
    assert answers[:2] == [100, 100]
    schedule = copy(log)
    services = CausalServices(schedule, Clockwork(7), LIVE)
    while not schedule.exhausted():
        determinant = schedule.peek()
        schedule.take(type(determinant))
        if isinstance(determinant, Barrier):
            schedule.advance(determinant.epoch)
    assert services.now_ns() == 300


@pytest.mark.parametrize("looked_at", [False, True])
def test_a_clock_reading_is_taken_as_any_other_entry(looked_at: bool) -> None:
    readings = [10, 10, 300, 1 << 40, (1 << 40) + 1, (1 << 62) - 1]
    log = DeterminantLog(0)
    schedule = DeterminantCursor(log, 0, "count/0")
    for reading in readings:
        schedule.record(Clock(reading))
    again = copy(log)
    taken = []
    for _ in readings:
        if looked_at:
            again.peek()
        taken.append(again.take_clock())
        assert again.last_ns == taken[-1]
    assert taken == readings and again.exhausted()
    with pytest.raises(ReplayDivergence, match="asks for clock where the log ends"):
        again.take_clock()


@pytest.mark.parametrize("content", [b"\x01", b"\x01\x80", b"\x01" + b"\xff" * 11])
def test_a_damaged_clock_reading_is_a_divergence(content: bytes) -> None:
    log = DeterminantLog(0)
    log.merge(LogDelta(0, 0, 0, content))
    with pytest.raises(ReplayDivergence, match="cannot be read"):
        DeterminantCursor(log, 0, "count/0").take_clock()


def test_another_question_than_before_is_a_divergence_that_names_task_and_place() -> None:
    schedule = copy(recorded()[0])
    schedule.take(Order)
    with pytest.raises(
        ReplayDivergence, match=r"^count/0 is .*: epoch 0, byte 2 .* asks for call, but the log has clock\)"
    ):
        CausalServices(schedule, Clockwork(1), LIVE).call(lambda: b"")


def test_a_task_whose_own_log_is_damaged_stops() -> None:
    log = DeterminantLog(0)
    log.merge(LogDelta(0, 0, 0, b"\x1f"))
    with pytest.raises(ReplayDivergence, match="cannot be read"):
        DeterminantCursor(log, 0, "count/0").peek()


def test_without_recording_nothing_is_remembered() -> None:
    schedule = DeterminantCursor(DeterminantLog(0), 0, "count/0", logging=False)
    schedule.record(Call(b"x"))
    schedule.record_order(0, 1)
    assert schedule.log.size == 0 and not schedule.bytes_by_kind


def test_the_clock_goes_on_from_the_last_reading_of_any_epoch() -> None:
    schedule = DeterminantCursor(DeterminantLog(0), 0, "count/0")
    services = CausalServices(schedule, Clockwork(1_000, 3, 2, 1), LIVE)
    assert services.now_ns() == 1_000
    schedule.record(Barrier(1))
    schedule.advance(1)
    assert services.now_ns() == 1_000
    restored = DeterminantCursor(DeterminantLog(0, 1), 1, "count/0")
    restored.last_ns = schedule.last_ns  # as a snapshot carries it on
    assert CausalServices(restored, Clockwork(5), LIVE).now_ns() == 1_000


def test_a_users_kind_is_recorded_and_checked_by_name() -> None:
    schedule = DeterminantCursor(DeterminantLog(0), 0, "count/0")
    services = CausalServices(schedule, Clockwork(1), LIVE)
    assert services.user("test-price", lambda: b"12") == b"12"
    services.user("test-price", lambda: b"13")
    assert schedule.bytes_by_kind == {"user": 8}
    again = CausalServices(copy(schedule.log), Clockwork(1), LIVE)
    assert again.user("test-price", lambda: b"never asked") == b"12"
    with pytest.raises(ReplayDivergence, match="'test-rate', but the log has 'test-price'"):
        again.user("test-rate", lambda: b"")
    with pytest.raises(OperatorFailed, match="register_kind"):
        services.user("unheard of", lambda: b"")
    assert User("test-price", b"12").kind == "user"


def test_an_answer_that_is_too_large_blames_the_operator_and_records_nothing() -> None:
    schedule = DeterminantCursor(DeterminantLog(0), 0, "count/0")
    services, large = CausalServices(schedule, Clockwork(1), LIVE), bytes(ANSWER_BYTES_MAX + 1)
    with pytest.raises(OperatorFailed, match="return a reference"):
        services.call(lambda: large)
    with pytest.raises(OperatorFailed, match="return a reference"):
        services.user("test-price", lambda: large)
    assert schedule.log.size == 0


def test_a_window_with_other_contents_is_a_divergence() -> None:
    schedule = DeterminantCursor(DeterminantLog(0), 0, "count/0")
    live = CausalServices(schedule, Clockwork(1), LIVE)
    for _ in range(2):
        live.window(0, 50, [(0, 3), (5, 2)])
    again = CausalServices(copy(schedule.log), Clockwork(1), LIVE)
    again.window(0, 50, [(0, 3), (5, 2)])
    with pytest.raises(ReplayDivergence, match="operator 0 fires a window"):
        again.window(0, 50, [(0, 3), (5, 1)])


def test_a_call_that_raises_leaves_no_trace() -> None:
    schedule = DeterminantCursor(DeterminantLog(0), 0, "count/0")

    def refuse() -> bytes:
        raise OSError("no answer")

    with pytest.raises(OSError, match="no answer"):
        CausalServices(schedule, Clockwork(1), LIVE).call(refuse)
    assert schedule.log.size == 0


def test_the_last_event_of_a_log_is_a_replay() -> None:
    schedule = copy(recorded()[0])
    services = CausalServices(schedule, Clockwork(7), REPLAYED)
    schedule.take(Order)
    assert services.replaying()
    for _ in range(2):
        services.now_ns()
    services.seed()
    services.call(lambda: b"")
    schedule.take(Barrier)
    schedule.advance(1)
    services.now_ns()
    services.seed()
    assert schedule.exhausted() and services.replaying(), "nothing is left of the log, and this event came from it"


def test_what_is_performed_live_is_no_replay_whatever_the_log_has() -> None:
    assert not CausalServices(copy(recorded()[0]), Clockwork(1), LIVE).replaying()


@pytest.mark.parametrize("state", [State.SHADOWING, State.REPLAYING])
def test_whether_an_event_is_a_replay_is_not_asked_of_its_log(state: State) -> None:
    schedule = DeterminantCursor(DeterminantLog(0), 0, "count/0")
    performed = SHADOWED if state is State.SHADOWING else REPLAYED
    assert performed.state is state
    assert CausalServices(schedule, Clockwork(1), performed).replaying() and schedule.exhausted()


def test_an_event_of_an_ordered_task_that_asks_is_logged_once() -> None:
    schedule = DeterminantCursor(DeterminantLog(0), 0, "count/0")
    services = CausalServices(schedule, Clockwork(1), LIVE)
    for _ in range(3):
        schedule.rule(choice=False)
    assert not schedule.log.size, "an event that asks for nothing logs nothing"
    assert not services.replaying() and not services.replaying()
    again = copy(schedule.log)
    assert again.take(Run) == Run(3) and again.exhausted()


def test_an_ordered_task_logs_nothing_in_a_replay() -> None:
    schedule = DeterminantCursor(DeterminantLog(0), 0, "count/0")
    schedule.rule(choice=False)
    assert CausalServices(schedule, Clockwork(1), REPLAYED).replaying() and not schedule.log.size


def test_a_shadow_asks_nothing_of_the_outside() -> None:
    def refuse() -> bytes:
        raise AssertionError("the outside is asked")

    schedule = DeterminantCursor(DeterminantLog(0), 0, "count/0")
    services = CausalServices(schedule, Clockwork(1), SHADOWED)
    with pytest.raises(ReplayDivergence, match="hot standby asks"):
        services.call(refuse)
    with pytest.raises(ReplayDivergence, match="hot standby asks"):
        services.user("test-price", refuse)


def orders(log: DeterminantLog) -> list[tuple[int, int]]:
    """(input, count) of each entry of epoch 0, which has orders alone."""
    schedule = DeterminantCursor(log, 0, "count/0")
    taken = []
    while schedule.replaying:
        order = schedule.take(Order)
        taken.append((order.input, order.count))
    return taken


def test_events_that_commute_are_one_entry_per_input_and_what_shows_them_comes_last() -> None:
    log = DeterminantLog(0)
    schedule = DeterminantCursor(log, 0, "count/0")
    for input, count in ((0, 2), (1, 1), (0, 3), (1, 4)):
        schedule.defer_order(input, count)
        schedule.settle_order()
    assert log.extent(0) == 0, "nothing depends on them yet"
    schedule.defer_order(0, 7)
    schedule.log_run()  # it leaves something
    schedule.settle_order()
    schedule.defer_order(1, 1)
    schedule.settle_order()
    schedule.record_order(2, 1)
    assert orders(log) == [(0, 5), (1, 5), (0, 7), (1, 1), (2, 1)]


def test_an_answer_comes_after_the_event_that_asks_for_it_and_all_before() -> None:
    log = DeterminantLog(0)
    schedule = DeterminantCursor(log, 0, "count/0")
    services = CausalServices(schedule, Clockwork(100), LIVE)
    for input in (0, 1, 0):
        schedule.defer_order(input, 1)
        schedule.settle_order()
    schedule.defer_order(1, 5)
    services.now_ns()
    schedule.settle_order()
    schedule.defer_order(1, 1)
    schedule.settle_order()
    schedule.log_run()
    again = DeterminantCursor(log, 0, "count/0")
    assert [again.take(kind) for kind in (Order, Order, Order, Clock, Order)] == [
        Order(0, 2), Order(1, 1), Order(1, 5), Clock(100), Order(1, 1),
    ]  # fmt: skip


def test_no_event_without_an_entry_passes_a_barrier() -> None:
    schedule = DeterminantCursor(DeterminantLog(0), 0, "count/0")
    schedule.defer_order(0, 1)
    schedule.settle_order()
    with pytest.raises(InvariantViolation, match="no place in its epoch"):
        schedule.advance(1)


def test_without_a_log_nothing_is_deferred() -> None:
    schedule = DeterminantCursor(DeterminantLog(0), 0, "count/0", logging=False)
    schedule.defer_order(0, 1)
    schedule.settle_order()
    schedule.advance(1)
    assert schedule.log.extents() == {}


def test_a_run_is_told_before_the_next_entry_and_counts_the_event_that_is_under_way() -> None:
    log = DeterminantLog(0)
    writer = DeterminantCursor(log, 0, "count/0")
    for _ in range(3):
        writer.rule(choice=False)
    assert not log.extent(0)
    writer.record(Clock(7))
    writer.rule(choice=True)
    reader = DeterminantCursor(log, 0, "count/0")
    assert reader.peek() == Run(3)
    reader.take_run()
    reader.rule(False)
    with pytest.raises(ReplayDivergence, match="asks for clock, but the log has"):
        reader.take(Clock)
    reader.rule(False)
    reader.rule(False)
    assert reader.take(Clock).time_ns == 7
    assert reader.peek() == Run(1)


def test_an_epoch_begins_its_count_anew() -> None:
    log = DeterminantLog(0)
    writer = DeterminantCursor(log, 0, "count/0")
    writer.rule(choice=False)
    writer.advance(1)
    writer.rule(choice=False)
    writer.record(Clock(7))
    assert not log.extent(0)
    assert DeterminantCursor(log, 1, "count/0").peek() == Run(1)
