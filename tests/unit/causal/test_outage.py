"""Calls of stores that are unavailable or do not return, and what a task does meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from causal.effects import Effect, OpenSink, OrphanReport, Phase, Reply, TruncateSink, WithdrawRows, WriteBundle
from causal.errors import DeterminantsLost, Fenced, RetriesExhausted, Unavailable
from causal.events import Event, OrphanQuery, SinkOpened, Turn
from causal.logs.rollback import OrphanAnswer
from causal.ports import Bundle, StoreState, WithdrawPoint
from causal.shell import driver as driving
from causal.shell import outage
from causal.shell.driver import TURNS_PER_POLL, TaskDriver
from causal.shell.outage import NO_ANSWER, StoreCalls
from causal.task.performer import StoreUnavailable
from causal.task.recovery import State


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 1_000
        for module in (outage, driving):
            monkeypatch.setattr(module, "monotonic_ns", lambda: self.now_ns)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def away() -> None:
    raise Unavailable("the server\nis down")


def test_a_store_that_is_away_is_tried_less_and_less_often_until_patience_ends(clock: Clock) -> None:
    reports: list[Any] = []
    calls = StoreCalls("out/0", 10.0, lambda kind, facts: reports.append((kind, facts.get("line"))))
    pauses = []
    while clock.now_ns < 10_000_000_000:
        with pytest.raises(StoreUnavailable):
            calls.make(away)
        assert calls.waiting == (1_000, "the server is down")
        pauses.append((calls.again_ns - clock.now_ns) // 1_000_000)
        clock.now_ns = calls.again_ns
    assert pauses[:9] == [10, 20, 40, 80, 160, 320, 640, 1000, 1000] and set(pauses[9:]) == {1000}
    with pytest.raises(RetriesExhausted) as ended:
        calls.make(away)
    assert str(ended.value).startswith(
        "sink task out/0: its store has been unavailable for 10 s (sink_retry_timeout_s is 10): the"
    )
    assert reports == [("waiting", "out/0: its store is unavailable, retrying: the server is down")]


def test_a_store_that_is_back_is_told_once_and_is_waited_for_as_long_again(clock: Clock) -> None:
    lines: list[Any] = []
    calls = StoreCalls("out/0", 10.0, lambda kind, facts: lines.append(facts["line"]))
    for _ in range(3):
        clock.now_ns += 9_000_000_000
        with pytest.raises(StoreUnavailable):
            calls.make(away)
        clock.now_ns += 5_000_000_000
        assert calls.make(lambda: 7) == 7
        assert calls.waiting is None
        assert calls.make(lambda: 8) == 8
    assert [line for line in lines if "again" in line] == ["out/0: its store is available again after 5.0 s"] * 3
    assert len(lines) == 6


def test_a_store_that_takes_a_part_before_each_failure_is_never_away_for_too_long(clock: Clock) -> None:
    lines: list[Any] = []
    calls = StoreCalls("out/0", 10.0, lambda kind, facts: lines.append(facts["line"]))

    def takes_a_part() -> None:
        clock.now_ns += 9_000_000_000
        outage.progressed()
        clock.now_ns += 2_000_000_000
        away()

    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            calls.make(takes_a_part)
        assert calls.waiting == (clock.now_ns - 2_000_000_000, "the server is down")
        assert calls.again_ns - clock.now_ns == outage.PAUSE_NS_MIN, "it begins to wait as in the first moment"
    assert len(lines) == 1
    clock.now_ns += 8_000_000_000
    with pytest.raises(RetriesExhausted, match="unavailable for 10 s"):
        calls.make(away)


def test_a_call_that_takes_parts_is_not_overdue_however_long_it_lasts(clock: Clock) -> None:
    calls = StoreCalls("out/0", 10.0, lambda kind, facts: None)
    overdue: list[bool] = []

    def takes_parts() -> None:
        for _ in range(4):
            clock.now_ns += 9_000_000_000
            overdue.append(calls.overdue() is not None)
            outage.progressed()
        clock.now_ns += 11_000_000_000
        overdue.append(calls.overdue() is not None)

    calls.make(takes_parts)
    assert overdue == [False] * 4 + [True]
    outage.progressed()
    assert (calls.call_ns, calls.waiting) == (0, None), "outside of a call it is nothing"


def test_other_errors_are_not_waited_for(clock: Clock) -> None:
    calls = StoreCalls("out/0", 10.0, lambda kind, facts: None)

    def fenced() -> None:
        raise Fenced("a zombie")

    with pytest.raises(Fenced):
        calls.make(fenced)
    assert calls.waiting is None


def test_another_thread_sees_a_call_that_does_not_come_back_and_when_it_must_end(clock: Clock) -> None:
    calls = StoreCalls("out/0", 60.0, lambda kind, facts: None)
    seen: list[Any] = []

    def attempt() -> int:
        for waited_s in (0.1, 1.0, 60.0, 61.0):
            clock.now_ns = 1_000 + int(waited_s * 1e9)
            seen.append((calls.call_ns, calls.waiting, calls.overdue()))
        return 7

    assert calls.make(attempt) == 7
    assert [call_ns for call_ns, _, _ in seen] == [1_000] * 4
    assert [waiting for _, waiting, _ in seen] == [None, *[(1_000, NO_ANSWER)] * 3]
    assert [overdue is None for _, _, overdue in seen] == [True, True, True, False]
    assert seen[-1][2].startswith(
        "sink task out/0: its store has been unavailable for 61 s (sink_retry_timeout_s is 60): a call has"
    )
    assert (calls.call_ns, calls.waiting, calls.overdue()) == (0, None, None)


class Store:
    """A store that is unavailable as long as a test sets."""

    def __init__(self) -> None:
        self.away = True
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        if self.away:
            raise Unavailable("not there")
        self.calls.append(name)

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        self._call("open")
        return StoreState(0, 0, ())

    def write(self, bundle: Bundle) -> None:
        self._call(f"write {bundle.first}")

    def truncate(self, epoch: int) -> None:
        self._call(f"truncate {epoch}")

    def close(self) -> None:
        self.calls.append("close")


class Task:
    """A task with the effects that a test sets, which records the events that it receives."""

    name, incarnation, idle = "out/0", 1, True
    reported_state = "running"
    recovery = SimpleNamespace(state=State.RUNNING)
    encoding, full = False, False
    channels = SimpleNamespace(sinks=defaultdict(lambda: SimpleNamespace(name="out/0")))

    def __init__(self, *asked: list[Effect]) -> None:
        self.asked = list(asked)
        self.handed: list[Event] = []

    def handle(self, event: Event, now_ns: int) -> list[Effect]:
        self.handed.append(event)
        return self.asked.pop(0) if self.asked else []

    def next_deadline_ns(self, now_ns: int) -> int | None:
        return None

    def counters(self) -> dict[str, int]:
        return {}

    def unfinished_log(self) -> None:
        """Return nothing, because the task does not record."""


class Quiet:
    """A transport and disk without any messages."""

    wake = "disk"
    snapshot_bytes = failed_merges = undeliverable = 0

    def __init__(self) -> None:
        self.replied: list[bytes] = []

    def receive(self, ready: Any) -> list[Any]:
        return []

    def reply(self, link: Any, parts: list[bytes]) -> None:
        self.replied += parts

    def close(self) -> None: ...


Report = Callable[[str, dict[str, Any]], None]


def driver_of(task: Task, outside: Quiet, store: Store, report: Report = lambda kind, facts: None) -> TaskDriver:
    """Return the driver of a sink task whose calls are patient for 9 seconds."""
    peers, stores = cast(Any, outside), {0: cast(Any, store)}
    return TaskDriver(cast(Any, task), "run", peers, peers, stores, {}, report, None, 9.0)


def test_rows_that_must_go_from_a_store_that_cannot_take_them_back_end_the_job_with_one_line(clock: Clock) -> None:
    task, quiet = Task([WithdrawRows(0, WithdrawPoint(3, 0, 0, 1, ()))]), Quiet()
    driver = driver_of(task, quiet, Store())
    with pytest.raises(
        DeterminantsLost, match=r"^out/0: visible rows depend on .* and its sink cannot withdraw rows; restore"
    ):
        driver.start()


@pytest.mark.parametrize("commanded", [False, True])
def test_a_command_ends_the_round_after_the_current_turn(commanded: bool) -> None:
    task, quiet = Task(), Quiet()
    task.idle = False
    driver = TaskDriver(
        cast(Any, task), "run", cast(Any, quiet), cast(Any, quiet), {}, {}, lambda kind, facts: None,
        urgent=lambda: commanded,
    )  # fmt: skip
    driver.work({})
    assert len(task.handed) == (1 if commanded else TURNS_PER_POLL)


def test_effects_wait_in_order_behind_a_store_that_is_away_and_answers_to_neighbours_do_not(clock: Clock) -> None:
    store, outside = Store(), Quiet()
    reported: list[str] = []
    task = Task([OpenSink(0), TruncateSink(0, 4), Phase("promoted", 0)], [TruncateSink(0, 5), Reply(b"up", [b"hello"])])
    driver = driver_of(task, outside, store, lambda kind, facts: reported.append(facts.get("phase", kind)))
    driver.start()
    assert driver.waiting == (1_000, "not there")
    assert reported == ["waiting", "promoted"]
    driver.work({})
    assert not any(isinstance(event, Turn) for event in task.handed), "no turn while its store is unavailable"
    driver.feed(Turn(0))
    assert outside.replied == [b"hello"]
    assert store.calls == [] and driver.wait_ms() == 10
    store.away = False
    driver.work({})
    assert store.calls == [], "not before it is due"
    clock.now_ns += 10_000_000
    driver.work({})
    assert store.calls == ["open", "truncate 4", "truncate 5"]
    assert driver.waiting is None
    assert [type(event) for event in task.handed[-2:]] == [SinkOpened, Turn]
    driver.close()


def test_a_task_is_busy_blocked_or_idle_at_any_time(clock: Clock) -> None:
    store, quiet = Store(), Quiet()
    task = Task([OpenSink(0)])
    driver = driver_of(task, quiet, store)

    def slept(rested_s: float) -> tuple[float, float, float]:
        clock.now_ns += int(rested_s * 1e9)
        driver.work({}, int(rested_s * 1e9))
        counters = driver.counters()
        return counters["busy_s"], counters["blocked_s"], counters["idle_s"]

    driver.start()
    assert slept(0.002) == (0.0, 0.002, 0.0), "its store is unavailable"
    store.away = False
    slept(0.02)
    assert driver.waiting is None
    assert slept(3.0) == (0.0, 0.022, 3.0)
    task.full = True
    assert slept(2.0) == (0.0, 2.022, 3.0), "its neighbour does not keep up"
    clock.now_ns += 500_000_000
    assert slept(0.0) == (0.5, 2.022, 3.0)
    driver.close()


def test_a_task_whose_store_is_away_answers_an_inquiry_at_once(clock: Clock) -> None:
    store, quiet = Store(), Quiet()
    reported: list[str] = []
    task = Task([OpenSink(0)], [TruncateSink(0, 5), OrphanReport(3, OrphanAnswer(True, None, ()))])
    driver = driver_of(task, quiet, store, lambda kind, facts: reported.append(kind))
    driver.start()
    driver.feed(OrphanQuery(3, []))
    assert reported == ["waiting", "finding"], "others stand still until every task has answered"
    assert store.calls == []
    driver.close()


@pytest.mark.parametrize("end", ["finished", "staged"])
def test_a_task_has_not_come_to_its_end_while_its_store_has_not_taken_the_last_rows(clock: Clock, end: str) -> None:
    store, outside = Store(), Quiet()
    reported: list[str] = []
    words: list[str] = []

    def report(kind: str, facts: dict[str, Any]) -> None:
        reported.append(facts.get("phase", kind))
        words.append(driver.reported_state)  # as a beat would say it at this moment

    task = Task([WriteBundle(0, Bundle(7, 1, b"1\n", 5, 0, 1, ()), []), Phase(end, 0)])
    task.reported_state = end
    driver = driver_of(task, outside, store, report)
    driver.start()
    assert (reported, words, driver.reported_state) == (["waiting"], ["running"], "running")
    store.away = False
    clock.now_ns += 10_000_000
    driver.work({})
    assert store.calls == ["write 7"]
    assert reported[-1] == end and driver.reported_state == end
    driver.close()
