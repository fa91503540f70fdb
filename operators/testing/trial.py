"""The step-by-step run of a single operator, with control over time, watermarks and crashes (`OperatorTrial`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from causal.errors import PipelineError, invariant
from operators.builder.pipeline import Pipeline, Stream
from operators.records.seconds import ns_of_seconds, seconds_of
from operators.sinks.files.jsonlines import JsonLinesSink
from operators.sources.generated import GeneratedSource
from operators.stage.operator import Operator
from operators.testing.frames import without_our_frames
from operators.testing.running import TrialResult, result_of, world_of

_BOUND_S = 1e9
"""The distance that a trial's watermarks keep below the times of records, so that records never advance them."""

NAME = "operator"
"""The operator name in errors and counts; the task is `operator/0`."""


class OperatorTrial:
    """An operator in its own task, which receives records one by one.

        trial = OperatorTrial(Visits(), key=lambda r: r["user"])
        assert trial.give({"user": 7}) == [{"user": 7, "n": 1}]
        trial.crash()
        assert trial.give({"user": 7}) == [{"user": 7, "n": 2}]

    Args:
        operator: an instance; the trial works on a copy, as every task does.
        key: returns the key of a record, as in `key_by`; without it, the operator keeps a single state.
        time: returns the event time of a record, as in `watermarks`; for operators that use event time.
        clock_s: the initial wall-clock time.
        seed: the seed for random numbers.
        config: other fields of `causal.config.JobConfig`.

    Attributes:
        out: all rows so far.
    """

    def __init__(
        self,
        operator: Operator,
        key: Callable[[Any], Any] | None = None,
        *,
        time: Callable[[Any], Any] | None = None,
        clock_s: float = 0.0,
        seed: int = 0,
        **config: Any,
    ) -> None:
        pipeline = Pipeline("trial")
        stream: Stream[Any] = pipeline.source("given", GeneratedSource(_never, count=0))
        if time is not None:
            stream = stream.watermarks("time", _time_or_mark(time), out_of_order_s=_BOUND_S).filter(
                "records", _is_record
            )
        keyed = stream if key is None else stream.key_by(key)
        keyed.process(NAME, operator, parallelism=1).sink("out", JsonLinesSink("."))
        self._world = world_of(pipeline, {"given": []}, {}, seed, clock_s, 0, 1, config)
        (self._input,) = self._world.partitions.values()
        self._input.endless = True
        task = self._world.topology.named(f"{NAME}/0")
        invariant(task is not None, "the operator has a task")
        self._task = int(task.index)  # type: ignore[union-attr]
        self._timed = time is not None
        self._seen = 0
        self._world.begin()
        self._world.settle()

    @property
    def out(self) -> list[Any]:
        """All rows emitted so far."""
        return self.result["out"]

    @property
    def result(self) -> TrialResult:
        """The results so far: rows, counts and determinants."""
        return result_of(self._world)

    @property
    def clock_s(self) -> float:
        """The wall-clock time."""
        return seconds_of(self._world.now_ns)

    @without_our_frames
    def give(self, *records: Any) -> list[Any]:
        """Pass these records to the operator, one event for each, and return the new rows."""
        self._input.add(records)
        return self._settled()

    @without_our_frames
    def watermark(self, seconds: float) -> list[Any]:
        """Pass a watermark, which fires event-time timers that are due, and return the new rows.

        Raises:
            PipelineError: the trial has no function for the time of a record.
        """
        if not self._timed:
            raise PipelineError("the trial has no event time; create OperatorTrial(…, time=fn)")
        return self.give({_MARK: seconds + _BOUND_S})

    @without_our_frames
    def advance(self, seconds: float) -> list[Any]:
        """Advance the clock, which fires timers that are due, and return the new rows."""
        until_ns = self._world.now_ns + ns_of_seconds(seconds)
        self._world.settle()
        while self._world.now_ns < until_ns:
            self._world.pass_time(until_ns)
            self._world.settle()
        return self._settled()

    @without_our_frames
    def checkpoint(self) -> None:
        """Checkpoint the current state, so that a later crash replays only later records."""
        self._world.checkpoint()
        self._world.settle()

    @without_our_frames
    def crash(self) -> None:
        """Kill the task, which is then restored from the last checkpoint and replays.

        Raises:
            ReplayDivergence: the replay produced rows that differ from those already visible.
        """
        self._world.die(self._task)
        self._settled()

    @without_our_frames
    def finish(self) -> list[Any]:
        """End the input and return the new rows.

        Raises:
            OperatorFailed: the remaining state cannot be checkpointed.
        """
        self._input.endless = False
        self._world.run()
        new = self._settled()
        self._world.check_state()
        return new

    def _settled(self) -> list[Any]:
        self._world.settle()
        out = self.out
        new, self._seen = out[self._seen :], len(out)
        return new


_MARK = "operators.testing: a watermark"


def _is_record(record: Any) -> bool:
    return not (type(record) is dict and _MARK in record)


def _time_or_mark(time: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def time_of(record: Any) -> Any:
        return time(record) if _is_record(record) else record[_MARK]

    return time_of


def _never(partition: int, i: int) -> Any:
    """Return an element; never called, because the trial replaces the source's elements with its own records."""
    return None
