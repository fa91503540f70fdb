"""`watermarks(name, time, …)`, which generates watermarks from the event times of the records that it passes on.

The watermark of an input channel is the largest time seen so far minus a bound, or what a generator returns.  The least
watermark of all inputs is passed on.  One watermark per batch is enough, unless the watermarks that were due inside the
batch make a record late.  The batch is cut before such a record, so that how records are batched does not decide which
of them are late.

An input is idle when nothing has arrived on it between several firings of the stage's timer.  Idleness depends on
processing time, so the firings are logged; the clock is not read for each batch.  Firings are counted instead of
measuring elapsed time, so the downtime of a job counts as at most one firing, however long it lasted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import sub
from typing import Any

from causal.errors import CausalError, OperatorFailed, PipelineError
from causal.records.values import NotCarried, encode
from operators.functions import check_methods
from operators.graph import Node, watermarks_before
from operators.stage.event_times import times_of
from operators.stage.failures import shown
from operators.stage.kind import Kind
from operators.stage.scope import Scope
from operators.stage.stages import Due, OneToOneStage, without
from operators.stage.watermark_merge import END_NS, IDLE_NS, Merge, Origins, least


class WatermarkGenerator:
    """The base class of users' generators, for `.watermarks(name, time, generator=MyGenerator)`; one per input channel.

    A generator must be deterministic: equal calls return equal results.  It keeps its memory in `state`, which is
    checkpointed and can contain anything that a record can; other attributes are not checkpointed.
    """

    def __init__(self) -> None:
        self.state: dict[Any, Any] = {}

    def on_batch(self, times_ns: Sequence[int]) -> int | None:
        """Return the watermark after a batch with these event times in ns, or None if the watermark does not change.

        A watermark m states that no record with a time below m will arrive on this input.  A watermark lower than the
        previous one is not passed on; it is counted as `watermark_fell`.  The number of records in a batch varies
        between runs, but never between a run and its replay.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no on_batch(self, times_ns)")


_CHECKS_MIN, _CHECKS_MAX = 2, 8
_CHECK_NS_MIN = 250_000_000
"""The shortest interval between two checks for idleness, unless it would allow fewer than `_CHECKS_MIN` checks."""

Piece = tuple[Any, int | None]


class WatermarkStage(OneToOneStage):
    """The stage that passes every record on and inserts watermarks between records."""

    makes_marks = True
    rank = 2

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        options, inputs = node.options, scope.inputs
        self._time_of: Callable[[Any], Any] = node.subject
        self._bound_ns: int = options["bound_ns"]
        """The distance by which a record may lag the largest time without being late."""
        self._idle_ns: int | None = options["idle_ns"]
        """The time without records after which an input is idle; in practice, it may take up to twice as long."""
        self._checks = max(_CHECKS_MIN, min(_CHECKS_MAX, (self._idle_ns or 0) // _CHECK_NS_MIN))
        """The number of checks during that time."""
        self._generator: Callable[[], WatermarkGenerator] | None = options["generator"]
        self._generators = [self._fresh_generator() for _ in range(inputs)] if self._generator else []
        self._arrival = scope.arrival
        self._merge = Merge(inputs)
        self._largest: list[int | None] = [None] * inputs
        self._quiet = [0] * inputs
        """The number of checks since the last record of each input."""
        self._idle = [False] * inputs
        self._next_ns = 0
        """The time of the next idleness check; 0 before the first firing, which only reads the time."""
        self._was_late = False
        """Whether the last check was so late that it did nothing but read the time."""
        self._unsent = False
        """Whether the watermark is due again after a change of the job graph."""
        self._ready: list[Piece] = []
        self._offset = 0

    def _fresh_generator(self) -> WatermarkGenerator:
        instance = self._generator() if self._generator else None
        if not isinstance(instance, WatermarkGenerator):
            raise PipelineError(
                f"the generator of watermarks {self.name!r} returned {instance!r:.60}; return a WatermarkGenerator"
            )
        check_methods(f"generator of watermarks {self.name!r}", instance, {"on_batch": ("times_ns",)})
        return instance

    # Records.

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Any]:
        input = self._arrival.input
        self._quiet[input], self._idle[input] = 0, False
        self._merge.active(input)
        times, self._lost = times_of(
            self._time_of, records, lambda index, problem: self.failed(index, records[index], problem)
        )
        if self._lost:
            records = without(records, self._lost)
        if times:
            self._ready += self._generated(input, records, times) if self._generators else self._cut(records, times)
        return []

    def _cut(self, records: Sequence[Any], times: Sequence[int]) -> list[Piece]:
        """Cut the batch into pieces so that a watermark precedes each record that it makes late."""
        input, bound_ns, pieces, begun = self._arrival.input, self._bound_ns, list[Piece](), 0
        known = self._largest[input]
        before = list(accumulate(times, max, initial=times[0] if known is None else known))
        self._largest[input] = before[-1]
        if min(map(sub, times, before)) < -bound_ns:
            for index, time_ns in enumerate(times):
                if time_ns < before[index] - bound_ns:
                    merged = self._merge.update(input, before[index] - bound_ns)
                    if merged is not None:
                        pieces.append((records[begun:index], merged))
                        begun = index
        pieces.append((records[begun:] if begun else records, self._merge.update(input, before[-1] - bound_ns)))
        return pieces

    def _generated(self, input: int, records: Sequence[Any], times: Sequence[int]) -> list[Piece]:
        try:
            mark = self._generators[input].on_batch(times)
            if mark is not None and (isinstance(mark, bool) or not isinstance(mark, int) or abs(mark) >= END_NS):
                raise TypeError(f"on_batch returned {mark!r}; return ns since 1970 (an int), or None")
        except CausalError:
            raise
        except Exception as problem:
            self.failures.stop(self.name, None, problem)
        if mark is None:
            return [(records, None)]
        known = self._merge.marks[input]
        self.count("watermark_fell", known is not None and mark < known)
        return [(records, self._merge.update(input, mark))]

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces in order; while one is being processed, `source_of` refers to it."""
        ready, self._ready, offset = self._ready, [], 0
        for records, mark in ready:
            if records:
                # The offset stays valid after the last piece, whose records may be encoded at the end of the event.
                self._offset = offset
            yield records, mark
            offset += len(records)

    def source_of(self, index: int) -> int:
        return super().source_of(index + self._offset)

    # Watermarks from upstream, and the end of the input.

    def passes(self, mark_ns: int) -> int | None:
        return END_NS if mark_ns == END_NS else None

    def ended(self, input: int) -> None:
        merged = self._merge.ended(input)
        if merged is not None and merged != END_NS:
            self._ready.append(([], merged))

    def ended_before(self, input: int) -> None:
        self._merge.ended_before(input)

    def advance(self, mark_ns: int) -> list[Any]:
        if mark_ns == END_NS:
            furthest = self._merge.furthest()
            if furthest is not None:
                self._ready.append(([], furthest))
        return []

    # A watermark that is due immediately after a change of the job graph, and idleness.

    def changed(self, epoch: int) -> None:
        """Pass on the watermark again, because new readers must not wait for the next record, which may never come.

        The inputs that this task has kept may also be ahead of the watermark that was passed on.  That watermark was
        the least of all inputs of an earlier task, some of which other tasks now read.
        """
        self._unsent = self._merge.behind() or self._merge.merged is not None

    def next_ns(self) -> int | None:
        if self._unsent:
            return 0
        return None if self._idle_ns is None else self._next_ns

    def fire(self, entries: Sequence[Due]) -> list[Any]:
        if self._unsent:
            self._unsent = False
            self._merge.caught_up()
            merged = self._merge.merged
            if merged is not None and merged != END_NS:
                self._ready.append(([], merged))
        if self._idle_ns is not None:
            self._check_idle(entries[-1][3], self._idle_ns // self._checks)
        return []

    def _check_idle(self, reading_ns: int, check_ns: int) -> None:
        # After a resume or a long event, records that this task has not been able to receive yet may be waiting.
        self._was_late = 0 < self._next_ns <= reading_ns - check_ns and not self._was_late
        if self._next_ns and not self._was_late:
            for input, quiet in enumerate(self._quiet):
                self._quiet[input] = min(quiet, self._checks) + 1
                if quiet >= self._checks and not self._idle[input]:
                    self._idle[input] = True
                    merged = self._merge.update(input, IDLE_NS)
                    if merged is not None and merged != END_NS:
                        self._ready.append(([], merged))
        self._next_ns = reading_ns + check_ns

    # Snapshots.

    def header(self) -> dict[str, Any]:
        return {
            "largest": list(self._largest),
            "merge": self._merge.header(),
            "quiet": list(self._quiet),
            "idle": list(self._idle),
            "next_ns": self._next_ns,
            "was_late": self._was_late,
            "unsent": self._unsent,
            "generators": [self._carried(generator.state) for generator in self._generators],
        }

    def _carried(self, state: dict[str, Any]) -> dict[str, Any]:
        try:
            encode(state)
        except NotCarried as problem:
            raise OperatorFailed(
                f"watermarks {self.name!r}: the state of its generator cannot be checkpointed: {problem}"
            ) from problem
        return state

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        self._largest, self._idle = list(header["largest"]), list(header["idle"])
        # An earlier version of this package did not store this field.
        self._quiet = list(header.get("quiet", [0] * len(self._idle)))
        self._merge.load(header["merge"])
        self._next_ns, self._was_late = header["next_ns"], header.get("was_late", False)
        self._unsent = header.get("unsent", False)
        self._generators = [self._fresh_generator() for _ in header["generators"]]
        for generator, state in zip(self._generators, header["generators"], strict=True):
            generator.state = state

    def rewired(self, headers: Sequence[dict[str, Any]], origins: Origins) -> Sequence[dict[str, Any]]:
        if not headers:
            return headers
        largest = [[headers[place]["largest"][input] for place, input in each] for each in origins]
        fields = {  # idleness is counted again from the first check
            "largest": list(map(least, largest)),
            "quiet": [0] * len(origins),
            "idle": [False] * len(origins),
            "next_ns": 0,
            "was_late": False,
            "unsent": False,
            "merge": Merge.rewired([header["merge"] for header in headers], origins),
            "generators": [self._state_of(headers, each) for each in origins] if self._generator else [],
        }
        return [{**header, **fields} for header in headers]

    def _state_of(self, headers: Sequence[dict[str, Any]], origins: Sequence[tuple[int, int]]) -> dict[str, Any]:
        """Return the generator state for an input that continues the given earlier inputs."""
        states = [headers[place]["generators"][input] for place, input in origins]
        if any(state != states[0] for state in states):
            raise PipelineError(
                f"the generators of watermarks {self.name!r} have different states, such as {shown(states[0])}, but "
                "one input would continue several of them; keep the parallelism of the operators upstream"
            )
        return states[0] if states else self._fresh_generator().state

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the first header: all headers are equal, because the state of their inputs has been rewired."""
        return headers[0]


def _one_per_stream(node: Node) -> None:
    for edge in node.edges:
        before = watermarks_before(edge.source)
        if before is not None:
            raise PipelineError(
                f"{node.where}: watermarks {node.name!r} follows other watermarks ({before.name!r}, "
                f"{before.where}), but a stream can have watermarks only once; use .timed(fn) if new records have "
                "their time elsewhere"
            )


def _generated(node: Node) -> str:
    """Return a description of the generator that wrote the state; without one, the state is the largest times."""
    generator = node.options["generator"]
    return "one without a generator" if generator is None else f"one by {type(generator()).__qualname__}"


KINDS = {"watermarks": Kind(WatermarkStage, check=_one_per_stream, meaning=_generated)}
