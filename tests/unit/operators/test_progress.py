"""The frames of the loop's thread show its work while it waits inside user code."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from causal.process.clock import monotonic_ns
from causal.task.activity import Activity, sentence
from operators import Operator
from operators.runtime import work_progress as progress
from operators.runtime.work_progress import Progress, Work, timed_out
from tests.unit.operators.scene import ran


class Watch:
    """Looks from another thread at the moment that user code calls `here`."""

    def __init__(self) -> None:
        self.work = Work()
        self.work.begin("work")
        self.progress = Progress(self.work)
        self.seen: list[Activity | None] = []

    def here(self) -> None:
        for _ in range(2):
            looking = threading.Thread(target=lambda: self.seen.append(self.progress.look()))
            looking.start()
            looking.join()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    monkeypatch.setattr(progress, "LONG_NS", 0)
    return Watch()


def performed(build: Callable[[Any], Any], count: int = 3) -> None:
    ran(build, [{"i": i, "k": i % 2} for i in range(count)], batch=count)


def by_key(numbers: Any) -> Any:
    return numbers.key_by(lambda record: record["k"])


def test_a_record_that_took_its_time_before_is_not_held_against_the_next(watch: Watch) -> None:
    def slow(record: Any) -> Any:
        watch.here()
        return record

    performed(lambda numbers: numbers.map("slow", slow))
    records = {activity.record: activity.since_ns for activity in watch.seen if activity is not None}
    assert len(records) == 3 and sorted(records.values()) == list(records.values())
    assert len(set(records.values())) == 3, "each record began on its own"


class Slow(Operator):
    def __init__(self, watch: Watch, how: str) -> None:
        self.watch, self.how = watch, how

    def process(self, record: Any, ctx: Any) -> Any:
        if self.how == "process" and record["i"] == 1:
            self.watch.here()
        elif self.how == "call" and record["i"] == 1:
            ctx.call(self.watch.here)
        elif self.how == "timer":
            ctx.set_timer(5.0, clock="event")
        return []

    def on_timer(self, name: str, ctx: Any) -> None:
        if ctx.key == 1:
            self.watch.here()


class Generating(Slow):
    def process(self, record: Any, ctx: Any) -> Any:
        yield from super().process(record, ctx)


def build_window(numbers: Any, watch: Watch) -> Any:
    return by_key(numbers).window("slow", 3600, lambda key, records, window: watch.here() if key == 1 else None)


def build_map(numbers: Any, watch: Watch) -> Any:
    return numbers.map("slow", lambda record: watch.here() if record["i"] == 1 else record)


def processed(kind: type[Slow], how: str) -> Callable[[Any, Watch], Any]:
    return lambda numbers, watch: by_key(numbers.watermarks("time", lambda r: r["i"])).process("slow", kind(watch, how))


RECORD = "{'i': 1, 'k': 1}"


@pytest.mark.parametrize(
    ("build", "record", "key"),
    [
        (build_map, RECORD, ""),
        *((processed(kind, how), RECORD, "1") for kind in (Slow, Generating) for how in ("process", "call")),
        (processed(Slow, "timer"), None, "1"),
        (build_window, None, "1"),
    ],
    ids=["map", "process", "call", "generator", "call in a generator", "timer", "window"],
)
def test_what_runs_tells_its_operator_record_key_and_line(watch: Watch, build: Any, record: Any, key: str) -> None:
    performed(lambda numbers: build(numbers, watch))
    activity = watch.seen[-1]
    assert activity is not None and activity.kind == "event"
    assert (activity.operator, activity.key) == ("slow", key) and activity.at.startswith(f"{__file__}:")
    assert record is None or activity.record == record


def test_the_key_that_takes_the_most_looks_leads() -> None:
    watch = Watch()  # no event is long here

    class Uneven(Operator):
        def process(self, record: Any, ctx: Any) -> Any:
            for _ in range(3 if ctx.key == 1 else 1):
                watch.here()
            return []

    performed(lambda numbers: by_key(numbers).process("uneven", Uneven()), count=4)
    assert watch.progress.hot_keys == (("1", 0.75), ("0", 0.25)) and set(watch.seen) == {None}


def test_looks_at_what_has_no_key_count_as_work_and_those_at_rest_do_not() -> None:
    watch = Watch()
    watch.here()

    class Keyed(Operator):
        def process(self, record: Any, ctx: Any) -> Any:
            watch.here()
            return []

    performed(lambda numbers: by_key(numbers).process("keyed", Keyed()), count=1)
    assert watch.progress.hot_keys == (("0", 0.5),)
    for kind in ("", "load", "start"):
        watch.work.kind = kind
        watch.here()
    assert watch.progress.hot_keys == (("0", 0.5),)


def test_batches_of_several_keys_are_of_no_key(watch: Watch) -> None:
    class Batches(Operator):
        def process_batch(self, records: Any, keys: Any, ctx: Any) -> Any:
            watch.here()
            return []

    performed(lambda numbers: by_key(numbers).process("many", Batches()))
    activity = watch.seen[-1]
    assert activity is not None and activity.key == "" and watch.progress.hot_keys == ()


def test_a_name_in_the_state_is_not_the_key_of_the_record(watch: Watch) -> None:
    class Table:
        def get(self, key: Any) -> None: ...

    class Keyed:
        _ctx, _keyed = SimpleNamespace(key=7), True

    inner = progress._key(Table(), {"key": "total"}, progress._NOTHING)
    assert inner is progress._NOTHING
    assert progress._key(Keyed(), {"key": "total"}, inner) == 7


def test_what_rests_does_nothing_and_what_is_loaded_says_how_far(watch: Watch) -> None:
    watch.work.rest()
    watch.here()
    assert watch.seen == [None, None]
    watch.work.begin("load", 1000)
    watch.work.done = 250
    watch.here()
    activity = watch.seen[-1]
    assert activity is not None and (activity.kind, activity.done, activity.total) == ("load", 250, 1000)
    assert "(250 of 1,000 bytes)" in sentence(activity, monotonic_ns())


def test_a_value_that_changes_while_it_is_shown_is_no_reason_to_fall_silent() -> None:
    def gone(self: Any, key: Any) -> Any:
        raise KeyError(key)

    emptied = type("dict", (dict,), {"__getitem__": gone})
    assert progress._shown(emptied({1: 2})) == "<dict that changes>"
    assert len(progress._shown(["x" * 10_000] * 1000)) <= 300


def test_an_event_that_is_too_long_is_told_in_one_line_whatever_is_known_of_it() -> None:
    full = Activity("event", 0, "slow", "7", "{'i': 1}", "p.py:3")
    assert timed_out(full, 7.25, 5.0) == (
        "operator 'slow', key 7: the event is still running at p.py:3 after 7.2 s (event_timeout_s is 5); "
        "record {'i': 1}; correct the operator, or raise event_timeout_s and resume (--resume)"
    )
    assert timed_out(Activity("event", 0, "slow"), 7.25, 5.0).startswith(
        "operator 'slow': the event is still running after 7.2 s (event_"
    )


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (
            {"kind": "event", "operator": "slow", "key": "5", "at": "p.py:3"},
            "in 'slow' for 7.2 s, key 5, at p.py:3",
        ),
        ({"kind": "load", "done": 1000, "total": 5000}, "loading its state for 7.2 s (1,000 of 5,000 bytes)"),
        ({"kind": "start", "at": "p.py:1"}, "loading the pipeline for 7.2 s, at p.py:1"),
        ({"kind": "store"}, "in a call to its store for 7.2 s"),
        ({"kind": "work"}, "busy for 7.2 s"),
    ],
)
def test_an_activity_reads_as_a_sentence(facts: dict[str, Any], text: str) -> None:
    assert sentence(Activity(since_ns=1_000_000_000, **facts), 8_200_000_000) == text
