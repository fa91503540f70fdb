"""Every operator gives identical bytes for identical input and log (D10), also from a snapshot taken on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.ports import Chain, Output
from operators import CallFailed, Operator
from operators.builder.pipeline import Stream
from tests.unit.operators.scene import Services, chain_of, first_field, keyed, listed, planned

Build = Callable[[Stream[Any]], Stream[Any]]


class Everything(Operator):
    """Uses every service, nested state, deletion of state, and timers."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        state = ctx.state
        n = state["n"] = state.get("n", 0) + 1
        state.setdefault("seen", []).append((record[1], n))
        if n % 3 == 0:
            yield ("now", ctx.key, ctx.now())
        if n % 4 == 0:
            yield ("dice", ctx.random.random(), str(ctx.uuid()))
        if n % 5 == 0:
            try:
                yield ("called", ctx.call(self.outside, n))
            except CallFailed as failed:
                yield ("failed", str(failed))
        if n % 6 == 0:
            ctx.set_timer(ctx.now() + 0.003, "wake")
        if n % 7 == 0:
            state.clear()
        yield ("record", ctx.key, dict(state))

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        ctx.state["woken"] = ctx.state.get("woken", 0) + 1
        yield ("timer", name, ctx.key, ctx.state["woken"], ctx.now())

    @staticmethod
    def outside(n: int) -> Any:
        if n % 10 == 0:
            raise OSError("no one there")
        return {"answer": n, "as": (1, "two")}


CHAINS: dict[str, Callable[[], Chain]] = {
    "process": lambda: keyed(lambda s: s.process("op", Everything(), parallelism=1), "op/0"),
    "process without key": lambda: chain_of(planned(lambda s: s.process("op", Everything())), "op/0"),
    "reduce": lambda: keyed(lambda s: s.reduce("sum", lambda total, r: total + r[1], initial=0), "sum/0"),
    "reduce into a list": lambda: keyed(lambda s: s.reduce("all", lambda a, r: [*a, r[1]], initial=list), "all/0"),
    "count": lambda: keyed(lambda s: s.count("count"), "count/0"),
    "window": lambda: keyed(lambda s: s.window("w", 0.01, lambda k, rs, w: [(k, len(rs), w.end)]), "w/0"),
    "fused": lambda: keyed(
        lambda s: s.count("c").map("m", lambda r: (r[1], r[0])).flat_map("f", lambda r: [r] * (r[0] % 3)), "f/0"
    ),
    "routed": lambda: chain_of(
        planned(lambda s: s.key_by(first_field).count("c").key_by(lambda r: r[1]).count("d", parallelism=3)), "c/0"
    ),
}


def batches(seed: int) -> list[list[tuple[Any, int]]]:
    chance = Random(seed)
    keys = [0, 1, "a", b"b", (1, "x"), None, 2.5]
    return [[(chance.choice(keys), chance.randrange(1000)) for _ in range(chance.randint(1, 8))] for _ in range(25)]


class Run:
    """A chain that gets batches, and timers as they become due; with its events and its outputs."""

    def __init__(self, chain: Chain, services: Services) -> None:
        self.chain, self.services = chain, services
        self.events: list[tuple[str, Any]] = []
        self.outputs: list[list[Output]] = []
        self.position = 0

    def perform(self, what: str, argument: Any) -> None:
        self.events.append((what, argument))
        if what == "deliver":
            self.outputs.append(self.chain.deliver(0, listed(argument), self.position, self.services))
            self.position += len(argument)
        elif what == "fire":
            self.outputs.append(self.chain.fire(argument, self.services))
        else:
            self.outputs.append(self.chain.finish(self.services))

    def live(self, records: list[tuple[Any, int]]) -> None:
        due = self.chain.next_timer_ns()
        if due is not None and due <= self.services.clock_ns:
            self.perform("fire", self.services.clock_ns)
        self.perform("deliver", records)
        self.services.clock_ns += 2_000_000


def bytes_of(outputs: list[list[Output]]) -> list[Any]:
    return [[(ordinal, chunk.kind, chunk.count, bytes(chunk.body)) for ordinal, chunk in each] for each in outputs]


@pytest.mark.parametrize("name", CHAINS)
def test_the_same_input_and_log_give_the_same_bytes(name: str) -> None:
    live = Run(CHAINS[name](), Services())
    for records in batches(1):
        live.live(records)
    live.perform("finish", None)
    again = Run(CHAINS[name](), Services(live.services.log))
    for what, argument in live.events:
        again.perform(what, argument)
    assert bytes_of(again.outputs) == bytes_of(live.outputs)
    assert any(live.outputs)


@pytest.mark.parametrize("name", CHAINS)
@given(seed=st.integers(0, 10_000), first=st.integers(1, 10), second=st.integers(11, 20), step=st.integers(1, 3))
def test_a_chain_restored_from_snapshots_taken_while_it_went_on_continues_alike(
    name: str, seed: int, first: int, second: int, step: int
) -> None:
    live = Run(CHAINS[name](), Services())
    stored: list[Sequence[bytes]] = []
    job, log_at, event_at = None, 0, 0
    for number, records in enumerate(batches(seed)):
        if number in (first, second):
            while job is not None and not job.step(100):
                pass
            if job is not None:
                stored.append(job.parts())
            job = live.chain.snapshot(full=number == first)
            log_at, event_at = len(live.services.log), len(live.events)
            live.services.epoch_now += 1
        live.live(records)
        if job is not None and job.step(step):
            stored.append(job.parts())
            job = None
    while job is not None:
        if job.step(step):
            stored.append(job.parts())
            job = None
    restored = CHAINS[name]()
    for parts in stored:
        restored.restore(parts)
    services = Services(live.services.log[log_at:])
    services.epoch_now = live.services.epoch_now
    again = Run(restored, services)
    for what, argument in live.events[event_at:]:
        again.perform(what, argument)
    assert bytes_of(again.outputs) == bytes_of(live.outputs[event_at:])
