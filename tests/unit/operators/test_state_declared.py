"""State that is declared on a class belongs to the current key, survives a restore, and says what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest

from causal.errors import OperatorFailed, PipelineError
from causal.ports import Chain
from causal.records.batch import watermark
from operators import ListState, MapState, Operator, ReducingState, ValueState
from operators.state.snapshot_parts import read_part
from tests.unit.operators.scene import Services, chain_of, first_field, give, keyed, parts_of, planned, records_in

SECOND = 1_000_000_000


@dataclass
class Totals:
    n: int = 0


class Profile(Operator):
    pages = ListState[str]()
    total = ValueState(Totals)
    last = ValueState[Any]()
    by_day = MapState[str, int]()
    best = ReducingState[int](max)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        _, page, day, points = record
        self.pages.append(page)
        self.total.value.n += 1
        self.by_day[day] = self.by_day.get(day, 0) + points
        self.best.add(points)
        before = self.last.value
        self.last.value = points
        yield [ctx.key, list(self.pages), self.total.value.n, dict(self.by_day), self.best.value, before]

    def finish(self, ctx: Any) -> Iterator[Any]:
        yield [ctx.key, len(self.pages)]


def chain(operator: Operator, **settings: Any) -> Chain:
    return keyed(lambda stream: stream.process("op", operator, parallelism=1), "op/0", **settings)


def timed(operator: Operator) -> Chain:
    """Event time is the third field of a record."""
    job_plan = planned(
        lambda stream: (
            stream.watermarks("time", lambda record: record[2])
            .key_by(first_field)
            .process("op", operator, parallelism=1)
        )
    )
    return chain_of(job_plan, "op/0")


def shown(chain: Chain, key: Any) -> dict[str, Any]:
    return chain.inspect("op", key)


RECORDS = [("a", "p", "mon", 3), ("b", "q", "mon", 5), ("a", "r", "tue", 2)]


def test_each_key_has_its_own_and_a_restore_gives_it_back() -> None:
    live = chain(Profile())
    assert give(live, RECORDS) == [
        ["a", ["p"], 1, {"mon": 3}, 3, None],
        ["b", ["q"], 1, {"mon": 5}, 5, None],
        ["a", ["p", "r"], 2, {"mon": 3, "tue": 2}, 3, 3],
    ]
    restored = chain(Profile())
    restored.restore(parts_of(live, full=True))
    state = {"pages": ["p", "r"], "total": {"n": 2}, "last": 2, "by_day": {"mon": 3, "tue": 2}, "best": 3}
    assert shown(restored, "a") == shown(live, "a") == state
    assert shown(restored, "absent") == {}
    assert records_in(restored.finish(Services())) == [["a", 2], ["b", 1]]


def test_event_time_to_live_ends_with_the_watermark_and_is_counted() -> None:
    class Short(Operator):
        seen = ListState[int](ttl_s=8)
        named = MapState[str, int](ttl_s=8)

        def process(self, record: Any, ctx: Any) -> list[Any]:
            self.seen.append(record[1])
            self.named[str(record[1])] = record[1]
            return [[list(self.seen), dict(self.named)]]

    def mark(at_s: int) -> list[Any]:
        return records_in(live.deliver(0, [watermark(at_s * SECOND)], 0, Services()))

    live = timed(Short())
    mark(100)
    give(live, [("a", 1, 100)])
    mark(104)
    assert give(live, [("a", 2, 104)]) == [[[1, 2], {"1": 1, "2": 2}]]
    mark(108)
    assert shown(live, "a") == {"seen": [1, 2], "named": {"1": 1, "2": 2}}
    mark(109)
    assert shown(live, "a") == {"seen": [1, 2], "named": {"2": 2}}
    assert live.counts() == {"op": {"expired": 1}}
    restored = timed(Short())
    restored.restore(parts_of(live, full=True))
    live = restored
    assert give(live, [("a", 3, 111)]) == [[[1, 2, 3], {"2": 2, "3": 3}]]
    assert give(live, [("a", 4, 112)]) == [[[1, 2, 3, 4], {"3": 3, "4": 4}]]
    mark(121)
    assert shown(live, "a") == {} and live.counts() == {"op": {"expired": 5}}


def test_two_tasks_of_one_pipeline_do_not_share() -> None:
    operator = Profile()
    one, other = chain(operator), chain(operator)
    give(one, RECORDS)
    assert shown(other, "a") == {}
    with pytest.raises(RuntimeError, match="declared on the class of an operator"):
        operator.pages.append("x")


def test_what_is_put_in_is_copied_and_what_is_read_of_a_list_too() -> None:
    class Sharing(Operator):
        items = ListState[Any]()
        value = ValueState[list[int]](default=[0])
        named = MapState[str, list[int]]()

        def process(self, record: Any, ctx: Any) -> list[Any]:
            numbers = [1]
            self.items.append(numbers)
            self.named["x"] = numbers
            self.value.value.append(2)
            numbers.append(9)
            self.items[0].append(8)
            self.named["x"].append(7)
            self.items.extend([{"n": 1}])
            return [[self.items[:], self.value.value, self.named["x"], self.items[-1], len(self.items)]]

    assert give(chain(Sharing()), [("k",)]) == [[[[1], {"n": 1}], [0, 2], [1, 7], {"n": 1}, 2]]


def test_what_is_not_there_is_missed_as_in_a_list_and_a_dict() -> None:
    class Misses(Operator):
        items = ListState[int]()
        named = MapState[str, int]()

        def process(self, record: Any, ctx: Any) -> None:
            for error, act in (
                (IndexError, lambda: self.items.__setitem__(9, 1)),
                (IndexError, lambda: self.items.__delitem__(7)),
                (KeyError, lambda: self.named.__delitem__("zz")),
                (KeyError, lambda: self.named["zz"]),
                (KeyError, self.named.popitem),
            ):
                with pytest.raises(error):
                    act()

    give(chain(Misses()), [("k",)])


def test_lists_and_maps_are_false_while_empty_and_equal_to_lists_and_dicts_of_the_same() -> None:
    class Compares(Operator):
        items = ListState[int]()
        others = ListState[int]()
        named = MapState[str, int]()

        def process(self, record: Any, ctx: Any) -> Any:
            yield bool(self.items), bool(self.named), self.items == self.others, self.items == [], self.named == {}
            self.items.append(1)
            self.named["a"] = 1
            yield bool(self.items), bool(self.named), self.items == [1], self.named == {"a": 1}
            yield self.items == self.others, self.items == [], self.items == (1,), [1] == self.items, self.named == {}

    assert give(chain(Compares()), [("k",)]) == [
        (False, False, True, True, True),
        (True, True, True, True),
        (False, False, False, True, False),
    ]


def test_a_list_that_is_assigned_its_own_items_keeps_copies() -> None:
    class Own(Operator):
        items = ListState[list[int]]()

        def process(self, record: Any, ctx: Any) -> Any:
            self.items[:] = [[1]]
            self.items[:] = [*self.items, *self.items]
            numbers = [2]
            self.items.insert(0, numbers)
            numbers.append(9)
            with pytest.raises(IndexError):
                del self.items[7]
            yield list(self.items)

    assert give(chain(Own()), [("k",)]) == [[[2], [1], [1]]]


def test_processing_time_to_live_fires_once_per_tick_and_reads_no_clock_besides() -> None:
    class Short(Operator):
        seen = ValueState[int](ttl_s=0.8, clock="processing")

        def process(self, record: Any, ctx: Any) -> list[Any]:
            before, self.seen.value = self.seen.value, record[1]
            return [[ctx.key, before]]

    live = chain(Short())
    services = Services(start_ns=1_000_000_000)
    assert give(live, [("a", 1), ("b", 2), ("a", 3)], services) == [["a", None], ["b", None], ["a", 1]]
    assert services.log == [("clock", 1_001_000_000)]
    assert live.next_timer_ns() == 1_101_000_000
    live.fire(1_101_000_000, services)
    assert give(live, [("a", 4)], services) == [["a", 3]]
    restored = chain(Short())
    restored.restore(parts_of(live, full=True))
    for each in (live, restored):
        assert each.next_timer_ns() == 1_201_000_000
        each.fire(1_900_999_999, services)  # late: what was written meanwhile is not older for it
        assert each.next_timer_ns() == 2_000_999_999
        each.fire(2_000_999_999, services)
        assert give(each, [("b", 5), ("a", 6)], services) == [["b", None], ["a", 4]]
    assert services.log == [("clock", 1_001_000_000)]


@pytest.mark.parametrize("kind", [ValueState, ListState, MapState])
def test_an_increment_in_which_all_expired_and_others_came_leaves_the_tick_as_it_was(kind: Any) -> None:
    """A restored task that asked the clock once more than the one before would contradict its log."""

    class Short(Operator):
        lately = kind(ttl_s=0.8, clock="processing")

        def process(self, record: Any, ctx: Any) -> None:
            if kind is ValueState:
                self.lately.value = record[1]
            elif kind is ListState:
                self.lately.append(record[1])
            else:
                self.lately[record[1]] = record[1]

    live, restored, services = chain(Short()), chain(Short()), Services(start_ns=1_000_000_000)
    give(live, [("a", 1)], services)
    restored.restore(parts_of(live, full=True))
    for at_ns in (1_101_000_000, 1_901_000_000):
        live.fire(at_ns, services)
    give(live, [("b", 2)], services)
    restored.restore(parts_of(live))
    assert restored.next_timer_ns() == live.next_timer_ns() is not None
    asked = len(services.log)
    for each in (live, restored):
        give(each, [("c", 3)], services)
    assert len(services.log) == asked == 2


def declaring(**states: Any) -> Operator:
    declared: type[Operator] = type("Declaring", (Operator,), {"process": lambda self, record, ctx: None, **states})
    return declared()


@pytest.mark.parametrize(
    ("operator", "line"),
    [
        (
            declaring(total=ValueState(int, default="a")),
            "declared with values of type int and the default .a.; use a default of that type",
        ),
        (
            declaring(total=ValueState(set)),
            "state 'total' of operator 'op' is declared with a type that cannot be encoded: set; use a dict with None",
        ),
        (
            declaring(total=MapState[str, object]()),
            "state 'total' of operator 'op' is declared with a type.*object; use",
        ),
        (
            declaring(timers=ListState()),
            "operator 'op' declares a state named 'timers', a name that is already taken; rename the state",
        ),
        (
            declaring(n=ListState(), process_batch=lambda self, r, k, c: None),
            "declares state 'n'.*defines process_batch",
        ),
        (
            declaring(seen=ValueState),
            r"state 'seen' of operator 'op' is the class ValueState; use ValueState\(\)$",
        ),
        (declaring(seen=MapState), r"the class MapState; use MapState\(\)$"),
        (declaring(seen=ListState[str]), r"the class ListState\[str\]; use ListState\[str\]\(\)$"),
        (declaring(seen=ReducingState), r"the class ReducingState; use ReducingState\(fn\)$"),
    ],
)
def test_what_is_wrong_with_a_declaration_is_said_before_the_job_starts(operator: Operator, line: str) -> None:
    with pytest.raises(PipelineError, match=line) as caught:
        chain(operator)
    assert "test_state_declared.py:" in str(caught.value) and "\n" not in str(caught.value)


class Named(TypedDict):
    n: int


@pytest.mark.parametrize(
    ("state", "default"),
    [
        (ValueState(default=3), 3),
        (ValueState[Any](default="a"), "a"),
        (ValueState[int | None](default=3), 3),
        (ValueState(float, default=0), 0),
        (ValueState(dict, default=dict), {}),
        (ValueState(Named, default={"n": 1}), {"n": 1}),
        (ValueState[list[int]](default=[0]), [0]),
    ],
    ids=["untyped", "anything", "or none", "a whole number for a float", "what makes one", "a typed dict", "of ints"],
)
def test_a_default_that_fits_is_the_value_of_a_key_without_one(state: ValueState[Any], default: Any) -> None:
    class Gives(Operator):
        kept = state

        def process(self, record: Any, ctx: Any) -> Iterator[Any]:
            yield self.kept.value

    assert give(chain(Gives()), [("k", 1)]) == [default]


def test_impossible_declarations_are_refused_where_they_are_written() -> None:
    with pytest.raises(ValueError, match="ttl_s is 0; use seconds above 0"):
        ValueState(ttl_s=0)
    with pytest.raises(ValueError, match="clock is 'wall'; use 'event' or 'processing'"):
        ListState(ttl_s=1, clock="wall")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ReducingState needs a function of two values, not a int"):
        ReducingState(3)  # type: ignore[arg-type]


def test_state_is_there_when_there_is_a_key_only() -> None:
    class Early(Profile):
        def open(self, ctx: Any) -> None:
            self.pages.append("x")

    with pytest.raises(OperatorFailed, match="declared state belongs to a key, but open\\(\\) has no key"):
        give(chain(Early()), RECORDS)


def test_an_object_of_another_class_is_refused_as_it_is_put() -> None:
    class Wrong(Operator):
        total = ValueState(Totals)

        def process(self, record: Any, ctx: Any) -> None:
            self.total.value = [3]  # type: ignore[assignment]

    with pytest.raises(OperatorFailed, match="key 'a'.*declared to hold Totals, not list"):
        give(chain(Wrong()), RECORDS)


def test_another_declaration_reads_what_it_can_and_refuses_the_rest() -> None:
    live = chain(declaring(pages=ListState[str](), total=ValueState(Totals)))
    parts = parts_of(live, full=True)
    chain(declaring(pages=ListState[Any]())).restore(parts)
    for operator, line in [
        (
            declaring(pages=ValueState()),
            "state 'pages' of operator 'op' was a list and is now read as a value; give the state a new",
        ),
        (declaring(pages=ListState[int]()), "state 'pages' of operator 'op' was str and is now int; add a new field"),
        (declaring(total=ValueState[int]()), "state 'total' of operator 'op' was a record of n and is now int"),
    ]:
        with pytest.raises(PipelineError, match=line):
            chain(operator).restore(parts)


def test_a_snapshot_after_one_append_to_a_long_list_is_as_small_as_the_append() -> None:
    class Append(Operator):
        items = ListState[int]()

        def process(self, record: Any, ctx: Any) -> None:
            self.items.extend(record[1])

    live = chain(Append())
    give(live, [("k", list(range(100_000)))])
    first = parts_of(live, full=True)
    give(live, [("k", [7])])
    second = parts_of(live)
    assert sum(map(len, first)) > 300_000
    assert sum(len(part) for part in second if read_part(part)[0] is None) < 100
    restored = chain(Append())
    restored.restore(first)
    restored.restore(second)
    assert shown(restored, "k") == {"items": [*range(100_000), 7]}
