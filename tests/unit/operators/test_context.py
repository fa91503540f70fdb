"""`ctx` gives in a replay what it gave live, and is refused where it could not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from causal.errors import OperatorFailed
from operators import CallFailed, Context, Operator
from operators.stage import bounded_call
from operators.tracebacks import location, user_traceback
from tests.unit.operators.scene import Services, chain_of, give, keyed, planned, records_in


class Asks(Operator):
    def __init__(self, ask: Callable[[Context, Any], Any]) -> None:
        self.ask = ask

    def process(self, record: Any, ctx: Context) -> Any:
        yield self.ask(ctx, record)


def asks(ask: Callable[[Context, Any], Any], name: str = "op") -> Any:
    return chain_of(planned(lambda s: s.process(name, Asks(ask))), f"{name}/0")


def draw(ctx: Context, record: Any) -> float:
    return ctx.random.random()


def both(
    ask: Callable[[Context, Any], Any], records: list[Any], services: Services | None = None
) -> tuple[list[Any], list[Any]]:
    """Return the rows of a live run, and those of its replay."""
    live = services or Services()
    rows = give(asks(ask), records, live)
    return rows, give(asks(ask), records, Services(live.log))


def test_time_is_read_once() -> None:
    live, replayed = both(lambda ctx, r: (ctx.now_ns(), ctx.now()), [1, 2])
    assert live == replayed
    assert live[0] == (1_000_001_000_000, 1000.002)


def test_chance_is_the_same_in_a_replay_and_costs_one_seed() -> None:
    services = Services()
    live, replayed = both(lambda ctx, r: (ctx.random.random(), str(ctx.uuid())), [1, 2, 3], services)
    assert [kind for kind, _ in services.log] == ["seed"]
    assert live == replayed and len(set(live)) == 3
    assert all(UUID(text).version == 4 for _, text in live)


def test_each_operator_has_a_stream_of_its_own() -> None:
    assert give(asks(draw, "one"), [1]) != give(asks(draw, "two"), [1])


def test_chance_does_not_depend_on_draws_before_the_epoch() -> None:
    one, two = Services(), Services()
    drawn, fresh = asks(draw), asks(draw)
    give(drawn, [1, 2, 3], one)
    two.seed()
    one.epoch_now = two.epoch_now = 1
    assert give(drawn, [1], one) == give(fresh, [1], two)


def failing(ctx: Context, fn: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the answer of a call, or how it failed."""
    try:
        return ctx.call(fn, *arguments, **options)
    except CallFailed as failed:
        return (failed.kind, failed.reason, str(failed), location(failed), user_traceback(failed))


def test_a_call_runs_once_and_fails_again_without_running() -> None:
    calls: list[int] = []

    def outside(n: int) -> Any:
        calls.append(n)
        return {"n": (n, "x")} if n else dict[str, int]()["nope"]

    live, replayed = both(lambda ctx, r: failing(ctx, outside, r), [1, 2, 0])
    assert calls == [1, 2, 0] and live == replayed and live[:2] == [{"n": (1, "x")}, {"n": (2, "x")}]
    kind, reason, text, where, trace = live[2]
    assert (kind, reason, text) == ("KeyError", "'nope'", "KeyError: 'nope'")
    assert where == f"{__file__}:{outside.__code__.co_firstlineno + 2} in outside", "also in a replay"
    assert '["nope"]' in trace and trace.rstrip().endswith("CallFailed: KeyError: 'nope'")
    assert trace.count("Traceback (most recent call last)") == 2


@pytest.fixture
def never() -> Iterator[Callable[[], Any]]:
    """A function that returns when the test is over."""
    let_go = threading.Event()
    yield lambda: let_go.wait(60)
    let_go.set()


def test_a_call_that_is_out_of_time_fails_in_a_replay_as_well_without_running(never: Callable[[], Any]) -> None:
    calls: list[int] = []

    def outside(n: int) -> Any:
        calls.append(n)
        return never() if n == 1 else n

    live, replayed = both(lambda ctx, r: failing(ctx, outside, r, timeout_s=0.05 if r == 1 else 60), [1, 2])
    assert live == replayed and live[0][2] == "TimeoutError: no answer within 0.05 s" and live[1] == 2
    assert calls == [1, 2]


def test_each_try_has_the_time_and_what_a_try_raises_is_its_failure(never: Callable[[], Any]) -> None:
    calls: list[int] = []

    def outside() -> Any:
        calls.append(len(calls))
        if len(calls) == 1:
            never()
        if len(calls) == 2:
            raise OSError("no one there")
        return "well"

    assert give(asks(lambda ctx, r: ctx.call(outside, retries=2, backoff_s=0, timeout_s=0.2)), [1]) == ["well"]
    assert calls == [0, 1, 2]


INSIDE = "ctx cannot be used inside a function passed to ctx.call"


@pytest.mark.parametrize(
    ("ask", "line"),
    [
        (lambda ctx, never: ctx.call(lambda: {1}), "CallFailed: NotCarried: the answer of ctx.call: a set does"),
        (lambda ctx, never: ctx.call(never, timeout_s=0.01), "CallFailed: TimeoutError: no answer within 0.01 s"),
        *((lambda ctx, never, s=s: ctx.call(int, timeout_s=s), "ctx.call has timeout_s .*; use seconds above 0, or N")
          for s in (0, -1.0, float("nan"))),
        (lambda ctx, never: ctx.call(ctx.now, timeout_s=60), INSIDE),
        (lambda ctx, never: ctx.call(ctx.now), INSIDE),
    ],
)  # fmt: skip
def test_a_call_that_nobody_catches_names_operator_and_record(ask: Any, line: str, never: Callable[[], Any]) -> None:
    with pytest.raises(OperatorFailed, match=f"operator 'op'.*{line}.*record 7"):
        give(asks(lambda ctx, r: ask(ctx, never)), [7])


def test_calls_that_never_come_back_are_left_behind_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_call, "ABANDONED_MAX", 2)
    let_go = threading.Event()

    def ask(ctx: Context, record: Any) -> Any:
        try:
            return ctx.call(lambda: let_go.wait(60), timeout_s=0.01)
        except CallFailed:
            return "late"

    bounded_call._abandoned.clear()
    with pytest.raises(OperatorFailed, match="operator 'op': 2 calls that timed out have not returned"):
        give(asks(ask), [1, 2, 3])
    left = list(bounded_call._abandoned)
    let_go.set()
    assert all(call.ended.wait(30) for call in left)
    assert give(asks(ask), [1]) == [True], "those that have come back do not count"


def test_ctx_is_open_again_behind_a_call() -> None:
    assert give(asks(lambda ctx, r: (ctx.call(int), ctx.now())), [1]) == [(0, 1000.001)]


def test_a_determinant_of_ones_own_is_recorded_by_kind() -> None:
    services, gauges = Services(), iter([b"7", b"8"])
    assert both(lambda ctx, r: ctx.determinant("gauge", lambda: next(gauges)), [1], services) == ([b"7"], [b"7"])
    assert services.log == [("user gauge", b"7")]


def test_key_task_and_replaying() -> None:
    def build(stream: Any) -> Any:
        return stream.process("op", Asks(lambda ctx, r: (ctx.key, ctx.task, ctx.replaying)))

    assert give(keyed(build, "op/0"), [("k", 1)]) == [("k", "op/0", False)]
    assert give(keyed(build, "op/0"), [("k", 1)], Services([])) == [("k", "op/0", True)]


def test_the_log_is_silent_in_a_replay(caplog: pytest.LogCaptureFixture) -> None:
    def ask(ctx: Context, record: Any) -> None:
        ctx.log.warning("seen %s", record)

    with caplog.at_level(logging.WARNING):
        both(ask, [1])
    assert [(entry.name, entry.message) for entry in caplog.records] == [("operators.op", "seen 1")]


def test_ctx_is_closed_between_events() -> None:
    kept: list[Context] = []
    give(asks(lambda ctx, r: kept.append(ctx)), [1])
    with pytest.raises(RuntimeError, match="outside of process"):
        kept[0].now()


def test_finish_is_called_for_each_key_in_an_order_that_survives() -> None:
    class Totals(Operator):
        def process(self, record: Any, ctx: Context) -> None:
            ctx.state["n"] = ctx.state.get("n", 0) + record[1]

        def finish(self, ctx: Context) -> Any:
            yield (ctx.key, ctx.state["n"])

    def build(stream: Any) -> Any:
        return stream.process("t", Totals())

    one, other = keyed(build, "t/0"), keyed(build, "t/0")
    records = [(key, 1) for key in ("b", 1, "a", (1, 2), None, "b")]
    give(one, records)
    give(other, records[::-1])
    expected = one.finish(Services())
    assert expected == other.finish(Services())
    assert len(expected[0][1].body) > 10


def test_finish_without_keys_is_called_once() -> None:
    class Ends(Operator):
        def process(self, record: Any, ctx: Context) -> None:
            return None

        def finish(self, ctx: Context) -> Any:
            return ["end"]

    chain = chain_of(planned(lambda s: s.process("e", Ends()).map("m", str.upper)), "m/0")
    assert records_in(chain.finish(Services())) == ["END"]
