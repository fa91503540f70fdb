"""The search of a replay: which event it stops at, of a scripted replay of two epochs."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from causal.determinants import Order, Timer
from causal.errors import PipelineError
from operators.replay.debugger import lines_at, repeats
from operators.replay.exact import Replay
from operators.replay.search import Outlook, Search, Stop, Visit, Wanted, shown_state
from operators.replay.watched import Arriving


def of_key(key: str, record: Any, kind: str = "record") -> Arriving:
    return Arriving("count/0", "count", record, key, None, kind)


EVENTS: dict[int, list[tuple[str, Any, int, int, list[Arriving]]]] = {
    3: [
        ("read/0", Order(0, 2), 0, 10, [Arriving("read/0", "read", {"n": 1}, None, None)]),
        ("count/0", Order(0, 2), 0, 10, [of_key("a", {"n": 1}), of_key("b", {"n": 2})]),
        ("count/0", Timer(20), 5, 20, [of_key("b", {"timer": "due"}, "timer"), of_key("a", {"timer": "due"}, "timer")]),
    ],
    4: [
        ("count/0", Order(0, 1), 0, 20, [of_key("a", {"n": 3})]),
        ("count/0", Order(0, 1), 4, 30, [of_key("a", {"n": 4}), of_key("a", {"window": [0, 9]}, "window")]),
    ],
}
"""Epoch → (task, event, bytes of the log before it, clock, what reaches operators)."""


class Scripted:
    """A replay, of which a search uses these methods; the state of a key is the number of its events."""

    def __init__(self) -> None:
        self.epoch = 3
        self.cone = SimpleNamespace(emitted=None, failed=[])
        self._left: Iterator[Any] = iter(())
        self._event: Any = None
        self._seen: list[Arriving] = []

    def watch_records(self, before_record: Any, before_other: Any) -> None:
        self._before = {"record": before_record}
        self._other = before_other

    def begin_epoch(self) -> None:
        self._left = iter(EVENTS[self.epoch])

    def next(self) -> Any:
        self._event = next(self._left, None)
        if self._event is None:
            self.epoch += 1
            return None
        return self._event[:2]

    def perform(self) -> None:
        for each in self._event[4]:
            self._before.get(each.kind, self._other)(each)
            self._seen += [each] if each.record != {"n": 4} else []

    def task(self, name: str) -> Any:
        return SimpleNamespace(begun_bytes=self._event[2], last_ns=self._event[3])

    def state(self, task: str, operator: str, key: Any) -> dict[str, Any]:
        return {"state": sum(each.key == key for each in self._seen)}


def stops(wanted: Wanted | None, then: Any = None) -> list[tuple[int, str, str, Any]]:
    """Return (epoch, kind, task, record) of each stop."""
    seen: list[Stop] = []

    def stopped(stop: Stop) -> None:
        seen.append(stop)
        if then is not None:
            then(search, stop)

    search = Search(cast(Replay, Scripted()), wanted, stopped, lambda _: pytest.fail("no other replay is needed"))
    search.run(4)
    return [(stop.epoch, stop.kind, stop.task, stop.record) for stop in seen]


def test_records_timers_and_windows_of_a_key_are_stops() -> None:
    assert stops(Wanted(3, key="a")) == [
        (3, "record", "count/0", {"n": 1}),
        (3, "timer", "count/0", {"timer": "due"}),
        (4, "record", "count/0", {"n": 3}),
        (4, "record", "count/0", {"n": 4}),
        (4, "window", "count/0", {"window": [0, 9]}),
    ]
    assert stops(Wanted(3, key="c")) == []


def test_a_condition_is_about_records_unless_it_asks_for_the_kind() -> None:
    assert stops(Wanted(3, condition="record['n'] > 2")) == [(4, "record", "count/0", {"n": n}) for n in (3, 4)]
    assert [kind for _, kind, _, _ in stops(Wanted(3, condition="kind != 'record'"))] == ["timer", "timer", "window"]
    assert stops(Wanted(3, key="a", condition="kind == 'timer'")) == [(3, "timer", "count/0", {"timer": "due"})]
    assert [record["n"] for *_, record in stops(Wanted(4, condition="state['state'] == 2"))] == [3]
    with pytest.raises(PipelineError, match="--break record.n: AttributeError.*operator, epoch and kind"):
        stops(Wanted(3, condition="record.n"))


def test_a_place_is_an_epoch_a_time_or_a_byte_of_a_log() -> None:
    assert stops(Wanted(4))[0] == (4, "record", "count/0", {"n": 3})
    assert stops(Wanted(3, task="count/0"))[0] == (3, "record", "count/0", {"n": 1})
    assert stops(Wanted(3, at_ns=20))[0] == (3, "timer", "count/0", None)
    assert stops(Wanted(4, task="count/0", log_bytes=4))[0] == (4, "record", "count/0", {"n": 4})
    assert stops(None) == []


def test_the_next_event_of_a_key_is_a_visit() -> None:
    def next_one(search: Search, stop: Stop) -> None:
        assert stop.visit is not None
        search.wanted = Wanted(stop.epoch, visit=Visit(stop.task, stop.operator, stop.key, stop.visit.number + 1))

    begin = Wanted(3, visit=Visit("count/0", "count", "a", 2))
    assert [kind for _, kind, _, _ in stops(begin, next_one)] == ["timer", "record", "record", "window"]


def test_watched_state_stops_after_a_change() -> None:
    def watch(search: Search, stop: Stop) -> None:
        assert stop.visit is not None
        search.watched = stop.visit, shown_state(stop.state)
        watched.append(stop)
        search.wanted = Wanted(stop.epoch, visit=Visit(stop.task, stop.operator, stop.key, stop.visit.number + 1))

    watched: list[Stop] = []
    begin = Wanted(3, visit=Visit("count/0", "count", "a", 3))
    stops(begin, watch)
    assert [stop.record for stop in watched] == [{"n": 3}, {"n": 4}], "the record n=4 leaves the state as it was"


def test_a_search_survives_its_way_through_a_pipe() -> None:
    for wanted in (
        Wanted(3, element=(7, 12)),
        Wanted(4, element=(7, 12), event=("count/0", 3)),
        Wanted(4, visit=Visit("count/0", "count", ("a", 1), 9)),
    ):
        assert Wanted.of(wanted.packed()) == wanted


def test_what_is_shown_names_the_kind_and_leaves_out_what_there_is_not() -> None:
    stop = Stop(3, "count/0", "timer", 2, "count", {"timer": "due"}, "a", None, Visit("count/0", "count", "a", 2), {})
    lines = lines_at(stop, Outlook("shop.py:3 in on_timer", "empty", "ValueError: no"))
    assert lines == [
        "count/0, epoch 3, event 2: timer 2 of its key at 'count' since the checkpoint",
        "  timer   {'timer': 'due'}",
        "  key     'a'",
        "  code    shop.py:3 in on_timer",
        "  state   empty",
        "  after   the same",
        "  raises  ValueError: no",
    ]
    assert lines_at(Stop(3, "read/0", "barrier", 9), Outlook("", "", "")) == ["read/0, epoch 3, event 9: barrier"]


def test_only_a_search_for_a_kind_of_records_stops_again() -> None:
    assert repeats(Wanted(3, key="a")) and repeats(Wanted(3, condition="True"))
    assert not repeats(Wanted(3)) and not repeats(Wanted(3, element=(1, 2)))
