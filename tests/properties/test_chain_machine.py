"""A chain that dies at any moment, repeatedly, emits what one that never died emits, byte for byte.

Each life begins with what the last complete snapshots restore, full ones and increments in any order, encoded while the
chain continued; what came after the barrier is replayed from the log. Keys, timers and windows keep their order. Of a
full one after others a standby loads all, or the increment that it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from causal.ports import Chain, Output, SnapshotJob
from operators import ListState, MapState, Operator, ReducingState, ValueState
from operators.state import keyed_tables
from operators.state.snapshot_parts import increment_of
from tests.members import examples
from tests.unit.operators.scene import Services, keyed, listed

MS = 1_000_000
KEYS = [0, "a", (1, "x"), None]
NAMES = ["one", "two"]
Bytes = list[tuple[int, int, int, bytes]]


@pytest.fixture(autouse=True)
def one_key_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves keys for later steps when one is about to change: there are only four."""
    monkeypatch.setattr(keyed_tables, "CLAIMED_MIN", 1)
    monkeypatch.setattr(keyed_tables, "CLAIMED_NUMERIC_MIN", 1)


class Busy(Operator):
    """A record is (key, what, number): puts, removes and re-inserts state, sets, moves and clears timers."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        _, what, number = record
        state = ctx.state
        if what == "put":
            state[number] = {"n": [number, (number,)], "at": len(state)}
        elif what == "remove" and state:
            state.pop(next(iter(state)))
        elif what == "clear":
            state.clear()
        elif what == "timer":
            ctx.set_timer(ctx.now() + number / 1000, NAMES[number % 2])
        elif what == "no timer":
            ctx.clear_timer(NAMES[number % 2])
        yield (ctx.key, what, list(state), ctx.random.random() if number % 5 == 0 else None)

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        ctx.state[name] = ctx.state.get(name, 0) + 1
        if ctx.state[name] % 3 == 0:
            ctx.set_timer(ctx.now() + 0.002, name)
        yield (ctx.key, name, list(ctx.state.items()))


@dataclass
class Totals:
    n: int = 0
    seen: list[Any] = field(default_factory=list)


class Keeper(Operator):
    """A record is (key, what, number): changes declared states of every kind, and emits all that they hold."""

    log = ListState[int]()
    recent = ListState[int](ttl_s=0.02, clock="processing")
    total = ValueState(Totals)
    by_number = MapState[int, list[int]](ttl_s=0.04, clock="processing")
    most = ReducingState[int](max)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        _, what, number = record
        if what == "put":
            self.log.append(number)
            self.recent.extend([number, -number])
            self.by_number.setdefault(number, []).append(number)
            self.most.add(number)
        elif what == "remove":
            self.by_number.pop(number, None)
            if self.log:
                self.log[-1] = number
        elif what == "clear":
            self.log.clear()
            self.total.clear()
            self.by_number.clear()
        elif what == "timer":
            self.total.value.n += number
            self.total.value.seen.append((number,))
        value = self.total.value
        yield (ctx.key, list(self.log), list(self.recent), [value.n, value.seen], dict(self.by_number), self.most.value)


def in_a_window(key: Any, records: list[Any], window: Any) -> list[Any]:
    """Keys come in the order of their first elements."""
    return [(key, len(records), records[0], records[-1], window.end)]


def a_chain() -> Chain:
    """State, timers and a counter in one task."""
    return keyed(lambda stream: stream.process("busy", Busy(), parallelism=1), "busy/0")


def a_keeper() -> Chain:
    """Declared states."""
    return keyed(lambda stream: stream.process("keeper", Keeper(), parallelism=1), "keeper/0")


def a_window() -> Chain:
    """Return windows of ten milliseconds."""
    return keyed(lambda stream: stream.window("w", 0.01, in_a_window), "w/0")


MAKERS = (a_chain, a_window, a_keeper)


@dataclass
class Event:
    """One event of the task: its input, the requests that it logged, and its output."""

    what: str
    argument: Any
    position: int
    epoch: int
    log: list[tuple[str, Any]]
    output: Bytes


def bytes_of(output: list[Output]) -> Bytes:
    return [(ordinal, chunk.kind, chunk.count, bytes(chunk.body)) for ordinal, chunk in output]


class Chains(RuleBasedStateMachine):
    """Two chains of each kind side by side: `mortal` dies, `twin` never does."""

    def __init__(self) -> None:
        super().__init__()
        self.chains = [(make(), make()) for make in MAKERS]
        self.events: list[list[Event]] = [[] for _ in MAKERS]
        self.now_ns = 1_000_000 * MS
        self.position = 0
        self.epoch = 0
        self.complete = [0] * len(MAKERS)
        """The number of events that the complete snapshots cover."""
        self.stored: list[list[Sequence[bytes]]] = [[] for _ in MAKERS]
        """Parts of the snapshots that restore each chain, oldest first."""
        self.jobs: list[tuple[SnapshotJob, int] | None] = [None] * len(MAKERS)
        self.linked = False
        """Whether a full snapshot under way is loaded by its increment."""

    def _perform(self, chain: Chain, event: Event, services: Services) -> Bytes:
        services.epoch_now = event.epoch
        if event.what == "deliver":
            return bytes_of(chain.deliver(0, listed(event.argument), event.position, services))
        return bytes_of(chain.fire(event.argument, services))

    def _live(self, place: int, what: str, argument: Any) -> None:
        event = Event(what, argument, self.position, self.epoch, [], [])
        mortal, twin = self.chains[place]
        services = Services(start_ns=self.now_ns)
        event.output = self._perform(twin, event, services)
        event.log = services.log
        again = Services(start_ns=self.now_ns)
        assert self._perform(mortal, event, again) == event.output
        assert again.log == event.log
        self.events[place].append(event)

    @rule(
        records=st.lists(
            st.tuples(
                st.sampled_from(KEYS),
                st.sampled_from(("put", "put", "remove", "clear", "timer", "timer", "no timer")),
                st.integers(0, 12),
            ),
            min_size=1,
            max_size=8,
        )
    )
    def deliver(self, records: list[Any]) -> None:
        for place in range(len(self.chains)):
            self._live(place, "deliver", records)
        self.position += len(records)
        self.now_ns += 3 * MS

    @rule(later_ms=st.integers(0, 15))
    def what_is_due_fires(self, later_ms: int) -> None:
        self.now_ns += later_ms * MS
        for place, (mortal, twin) in enumerate(self.chains):
            due = twin.next_timer_ns()
            assert mortal.next_timer_ns() == due
            if due is not None and due <= self.now_ns:
                self._live(place, "fire", self.now_ns)

    @rule(full=st.booleans(), linked=st.booleans())
    def a_barrier(self, full: bool, linked: bool) -> None:
        """Both chains stand still for it; a snapshot that is not encoded yet is completed first."""
        for place, (mortal, twin) in enumerate(self.chains):
            self._finish(place)
            unused = twin.snapshot(False)  # times to live take a barrier for a moment at which nothing is under way
            while not unused.step(100):
                pass
            behind = "digest" if full and self.stored[place] else ""
            self.jobs[place] = (mortal.snapshot(full or not self.stored[place], behind), len(self.events[place]))
        self.linked = full and linked
        self.epoch += 1

    @rule(keys_max=st.integers(1, 3))
    def some_keys_are_encoded(self, keys_max: int) -> None:
        for place in range(len(self.chains)):
            self._step(place, keys_max)

    @rule(full=st.booleans(), key=st.sampled_from(KEYS), records=st.booleans())
    def a_snapshot_of_a_cleared_key(self, full: bool, key: Any, records: bool) -> None:
        """A cleared key is in no restored state."""
        self.deliver([(key, "put", 1), (key, "clear", 1)] if records else [(key, "put", 2)])
        self.a_barrier(full, records)
        for place in range(len(self.chains)):
            self._finish(place)

    def _step(self, place: int, keys_max: int) -> None:
        under_way = self.jobs[place]
        if under_way is not None and under_way[0].step(keys_max):
            job, covers = under_way
            parts = job.parts()
            increment = increment_of(parts[0], "digest") if self.linked and self.stored[place] else None
            if increment is not None:
                assert increment_of(parts[0], "another") is None
                self.stored[place].append(increment)
            else:
                self.stored[place] = [parts] if job.full else [*self.stored[place], parts]
            self.complete[place] = covers
            self.jobs[place] = None

    def _finish(self, place: int) -> None:
        while self.jobs[place] is not None:
            self._step(place, 100)

    @precondition(lambda self: any(self.stored))
    @rule(place=st.integers(0, len(MAKERS) - 1))
    def die(self, place: int) -> None:
        """The snapshots of a standby are loaded, and the log is replayed."""
        restored = MAKERS[place]()
        for parts in self.stored[place]:
            restored.restore(parts)
        for event in self.events[place][self.complete[place] :]:
            services = Services(event.log)
            assert self._perform(restored, event, services) == event.output
            assert services.place == len(event.log), "a replay asks for all that was logged"
        self.chains[place] = (restored, self.chains[place][1])
        self.jobs[place] = None

    @invariant()
    def the_same_is_due(self) -> None:
        for mortal, twin in self.chains:
            assert mortal.next_timer_ns() == twin.next_timer_ns()


TestChains = Chains.TestCase
TestChains.settings = examples(divided_by=2, stateful_step_count=50)
