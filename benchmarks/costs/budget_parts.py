"""Defines which part of a batch's work a function belongs to, and a clock that charges each part what is its own.

What a function calls that belongs to another part is charged there, so parts add up.  The clock is the CPU time of the
thread, which stands still while something else has the core; what looking at it takes is measured with functions that
do nothing, and subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from time import thread_time_ns
from typing import Any

from benchmarks.harness.runs import RunFailed

READ, RECEIVE, MERGE, DECODE, OPERATORS, ROUTE = "read", "receive", "merge delta", "decode", "operators", "route"
LOG, ENCODE, KEEP, SHARE, SEND, CREDIT = "log", "encode", "keep", "share delta", "send", "credit"
SOCKET_IN, SOCKET_OUT, WRITE, TURN = "socket in", "socket out", "write", "turn"
PARTS = (
    READ, SOCKET_IN, RECEIVE, MERGE, DECODE, OPERATORS, ROUTE, LOG, ENCODE, KEEP, SHARE, SEND, SOCKET_OUT, CREDIT,
    WRITE, TURN,
)  # fmt: skip

TASKS = ("source", "count", "sink")
PLACES: dict[str, tuple[str, ...]] = {
    READ: ("operators.sources.generated._Reader.read",),
    SOCKET_IN: ("causal.shell.transport._take",),
    RECEIVE: (
        "causal.channels.exchange.Exchange.receive",
        "causal.channels.queue.FramedQueue.accept",
        "causal.channels.wire.unpack_payload",
    ),
    MERGE: (
        "causal.logs.deltas.DeltaReader.read",
        "causal.logs.dissemination.Holdings.check",
        "causal.logs.dissemination.Holdings.store",
        "causal.channels.queue.FramedQueue.note_depends",
    ),
    DECODE: ("operators.engine.chain.unite", "operators.engine.sink_chain.unite"),
    OPERATORS: ("operators.engine.chain.FusedChain.deliver", "operators.engine.sink_chain.SinkChain.deliver"),
    ROUTE: (
        "operators.stage.routing.KeyedRoute.add",
        "operators.stage.routing.KeyedRoute.drain",
        "operators.stage.routing.StraightRoute.add",
        "operators.stage.routing.StraightRoute.drain",
        "operators.stage.routing.DirectRoute.add",
        "operators.stage.routing.DirectRoute.drain",
    ),
    LOG: (
        "causal.task.determinant_cursor.DeterminantCursor.record",
        "causal.task.determinant_cursor.DeterminantCursor.record_order",
    ),
    ENCODE: ("operators.engine.chain.encode_records", "benchmarks.harness.tally.TallySink.encode"),
    KEEP: (
        "causal.channels.output_queue.OutputQueue.put",
        "causal.channels.output_queue.OutputQueue.seal",
        "causal.channels.sender.Sender.sent",
    ),
    SHARE: (
        "causal.logs.dissemination.Holdings.lacking",
        "causal.logs.deltas.DeltaWriter.pack",
        "causal.logs.deltas.split_deltas",
    ),
    SEND: ("causal.channels.exchange.Exchange.pump", "causal.channels.wire.pack_payload"),
    SOCKET_OUT: ("causal.shell.transport.Transport.send", "causal.shell.transport.Transport.reply"),
    CREDIT: (
        "causal.channels.exchange.Exchange.credit",
        "causal.channels.sender.Sender.credit",
    ),
    WRITE: (
        "causal.channels.sink_channel.SinkChannel.put",
        "causal.channels.sink_channel.SinkChannel.bundle",
        "operators.sinks.sqlite.sqlite_sink.SqliteStore.write",
    ),
}
"""Part → the functions it begins in; what is in none of them is `turn`: the loop, the poll, and what decides."""


class PartClock:
    """Charges time to parts while `running`; `taken` gives what was charged since the last time."""

    def __init__(self) -> None:
        self.running = False
        self._spent_ns = dict.fromkeys(PARTS, 0)
        self._calls = dict.fromkeys(PARTS, 0)
        self._inner = dict.fromkeys(PARTS, 0)
        """Timed calls that were made from inside a part."""
        self._open: list[str] = [TURN]
        self._since_ns = 0
        self._own_ns = self._outer_ns = 0.0

    def start(self) -> None:
        """Whatever is in no part is charged to `turn` from now on."""
        self.running = True
        self._since_ns = thread_time_ns()

    def stop(self) -> None:
        """Ends a measurement: until `start`, time is charged to no part."""
        self._spent_ns[TURN] += thread_time_ns() - self._since_ns
        self.running = False

    def taken(self) -> dict[str, float]:
        """Microseconds by part, without what measuring took."""
        took = {}
        for part in PARTS:
            measuring_ns = self._calls[part] * self._own_ns + self._inner[part] * self._outer_ns
            if self._spent_ns[part]:
                took[part] = max(0.0, self._spent_ns[part] - measuring_ns) / 1000
            self._spent_ns[part] = self._calls[part] = self._inner[part] = 0
        return took

    def timed(self, part: str, act: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, whose time is charged to a part; what it takes to do so is charged to none."""
        spent_ns, calls, inner, around, now_ns = self._spent_ns, self._calls, self._inner, self._open, thread_time_ns

        def charged(*arguments: Any, **named: Any) -> Any:
            entered_ns = now_ns()
            if not self.running:
                return act(*arguments, **named)
            outer = around[-1]
            spent_ns[outer] += entered_ns - self._since_ns
            inner[outer] += 1
            calls[part] += 1
            around.append(part)
            self._since_ns = now_ns()
            try:
                return act(*arguments, **named)
            finally:
                spent_ns[part] += now_ns() - self._since_ns
                around.pop()
                self._since_ns = now_ns()

        return charged

    def calibrate(self, tries: int = 200, blocks: int = 50) -> None:
        """Measure what is left in a part, and in the one around it, of a timed call of nothing: the least of many."""
        nothing = self.timed(READ, _nothing)
        self.taken()
        own, outer = [], []
        for _ in range(blocks):
            self.start()
            for _ in range(tries):
                nothing()
            self.stop()
            took = self.taken()
            own.append(took[READ] * 1000 / tries)
            outer.append(took[TURN] * 1000 / tries)
        self._own_ns, self._outer_ns = min(own), min(outer)


def look_ns() -> int:
    """Returns what two looks at the clock in a row lie apart."""
    return min(-thread_time_ns() + thread_time_ns() for _ in range(1000))


def _nothing() -> None:
    """Returns what is timed to know what timing costs."""


def install(clock: PartClock) -> None:
    """Put the clock around every function of `PLACES`, for the life of this process.

    Raises:
        RunFailed: one of them is not there any more.
    """
    for part, places in PLACES.items():
        for place in places:
            owner, name = _owner(place)
            act = owner.__dict__[name]
            listed = place.endswith("._take")  # a generator, charged to its caller otherwise
            setattr(owner, name, clock.timed(part, _at_once(act) if listed else act))


def _at_once(act: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    return lambda *arguments: list(act(*arguments))


def _owner(place: str) -> tuple[Any, str]:
    """The module or class that has the function, and its name there."""
    *path, name = place.split(".")
    for length in range(len(path), 0, -1):
        try:
            owner: Any = import_module(".".join(path[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in path[length:]:
            owner = getattr(owner, attribute, None)
        if owner is not None and name in vars(owner):
            return owner, name
        break
    raise RunFailed(f"{place} is not there any more; say in benchmarks/costs/budget_parts.py what does its work now")
