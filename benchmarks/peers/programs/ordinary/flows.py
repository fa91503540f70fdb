"""The workloads of `ordinary` for Bytewax.

Its event-time clock gets a time of day that stands still: by default a watermark also moves with the wall clock, and
a pause of the machine would make records late.  It has no join of intervals and none as of a time: those are user code
for one key, without late records.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from copy import deepcopy
from datetime import datetime, timedelta, timezone
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as windowing
from bytewax.dataflow import Dataflow, Stream
from bytewax.operators import StatefulBatchLogic

from benchmarks.peers.programs.bytewax_parts import PLACE, Reader, Sink, Source, Tallied
from benchmarks.peers.programs.ordinary import user_code as code
from benchmarks.peers.programs.ordinary.joins_by_hand import AsOf, Interval

UTC = timezone.utc  # noqa: UP017
NOW = datetime.now(UTC)
BEGAN = datetime.fromtimestamp(code.BEGAN_S, UTC)
BATCH = 4096

Inputs = Mapping[str, Any]


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


CLOCK = windowing.EventClock(
    lambda record: datetime.fromtimestamp(record["ts"], UTC),
    wait_for_system_duration=_seconds(code.OUT_OF_ORDER_S),
    now_getter=lambda: NOW,
    to_system_utc=lambda _: None,
)


def _merged(first: tuple[int, float], second: tuple[int, float]) -> tuple[int, float]:
    return first[0] + second[0], first[1] + second[1]


def _sums(readings: Any, windower: Any) -> Any:
    keyed = op.key_on("key", readings, code.user_of)
    return windowing.fold_window("sums", keyed, CLOCK, windower, code.nothing, code.added, _merged, ordered=False).down


def _windows(of: Inputs) -> Any:
    return _sums(of["readings"], windowing.TumblingWindower(length=_seconds(code.TUMBLING_S), align_to=BEGAN))


def _sliding(of: Inputs) -> Any:
    windower = windowing.SlidingWindower(length=_seconds(code.SLIDING_S), offset=_seconds(code.EVERY_S), align_to=BEGAN)

    def mean(result: Any) -> Any:
        user, (number, (n, total)) = result
        return user, (number, total / n)

    return op.map("means", _sums(of["readings"], windower), mean)


def _profile(of: Inputs) -> Any:
    charged = op.filter("charged", op.map("enriched", of["purchases"], code.enriched), code.is_charged)

    def profiled(state: Any, record: code.Record) -> Any:
        state = state or {}
        return state, code.profiled(state, record)

    return op.stateful_map("profile", op.key_on("key", charged, code.user_of), profiled)


class Joined(StatefulBatchLogic):
    """A join by hand as Bytewax runs it: (side, record) in, rows out."""

    def __init__(self, join: Interval | AsOf) -> None:
        self._join = join

    def on_batch(self, values: list[Any]) -> tuple[Iterable[Any], bool]:
        rows: list[Any] = []
        for side, record in values:
            self._join.take(side, record, rows)
        return rows, False

    def on_eof(self) -> tuple[Iterable[Any], bool]:
        rows: list[Any] = []
        if isinstance(self._join, AsOf):
            self._join.end(rows)
        return rows, False

    def snapshot(self) -> Any:
        return deepcopy(self._join)


def _by_key(first: Any, second: Any, key: Callable[[code.Record], str], join: type[Interval | AsOf]) -> Any:
    both = op.merge(
        "both",
        op.map("first", first, lambda record: (key(record), (0, record))),
        op.map("second", second, lambda record: (key(record), (1, record))),
    )
    return op.stateful_batch("joined", both, lambda state: Joined(state or join()))


def _join(of: Inputs) -> Any:
    return _by_key(of["orders"], of["payments"], code.user_of, Interval)


def _as_of(of: Inputs) -> Any:
    return _by_key(of["sales"], of["prices"], code.item_of, AsOf)


def _sessions(of: Inputs) -> Any:
    keyed = op.key_on("key", of["clicks"], code.user_of)
    windower = windowing.SessionWindower(gap=_seconds(code.GAP_S))
    visits = windowing.collect_window("visits", keyed, CLOCK, windower, ordered=False).down
    return op.map("rows", visits, lambda visit: code.visit(visit[0], visit[1][1]))


def _words(of: Inputs) -> Any:
    words = op.flat_map("words", of["lines"], str.split)
    counted = op.map("one", op.count_final("counts", words, lambda term: term), lambda row: ("", row))

    def ranked(top: list[Any], row: tuple[str, int]) -> list[Any]:
        code.ranked(top, *row)
        return top

    top = op.fold_final("top", counted, list, ranked)
    return op.flat_map("rows", top, lambda every: [(term, n) for n, term in every[1]])


def _running(of: Inputs) -> Any:
    words = op.key_on("key", op.flat_map("words", of["lines"], str.split), lambda term: term)

    def counted(n: int | None, _: str) -> tuple[int, int]:
        n = (n or 0) + 1
        return n, n

    return op.stateful_map("counts", words, counted)


BUILT: Mapping[str, Callable[[Inputs], Any]] = {
    "profile": _profile,
    "windows": _windows,
    "sliding": _sliding,
    "join": _join,
    "sessions": _sessions,
    "words": _words,
    "running": _running,
    "as_of": _as_of,
}
"""Workload → what comes out of the streams of its inputs."""


def _of_value(workload: str) -> Callable[[Any], Hashable]:
    """Return the key of comparison of rows (key, row)."""
    of_row = code.WORKLOADS[workload].verified
    return lambda keyed: of_row(keyed[1])


VERIFIED: Mapping[str, Callable[[Any], Hashable]] = {
    **{workload: _of_value(workload) for workload in ("profile", "join", "as_of")},
    "windows": lambda row: (row[0], *row[1][1], code.BEGAN_S + row[1][0] * code.TUMBLING_S),
    "sliding": lambda row: (row[0], row[1][1], code.BEGAN_S + row[1][0] * code.EVERY_S),
}
"""Workload → key of comparison of rows that have another form than in the bare job."""


def flow(workload: str, records: int) -> Dataflow:
    """Return the dataflow of a workload."""
    dataflow, every = Dataflow(workload), code.WORKLOADS[workload]
    counts = every.counts(records)

    def read(name: str, maker: code.Maker) -> Stream[Any]:
        def reader(part: int, position: int) -> Reader:
            return Reader(lambda a, b: [maker(part, i) for i in range(a, b)], counts[name], position, BATCH, 0.0, 0.0)

        return op.input(name, dataflow, Source(reader))

    streams = {name: read(name, maker) for name, (maker, _) in every.inputs.items()}
    verified = VERIFIED.get(workload)
    op.output("out", BUILT[workload](streams), Sink(lambda: Tallied(code.tally_of(workload, PLACE, verified))))
    return dataflow
