"""`OperatorTrial`: one operator by itself, step by step, with time, watermarks and crashes by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from causal.errors import PipelineError, invariant
from operators.operator import Operator
from operators.pipeline import Pipeline, Stream
from operators.seconds import ns_of_seconds, seconds_of
from operators.sinks.jsonlines import JsonLinesSink
from operators.sources.generated import GeneratedSource
from operators.testing.running import Told, told_of, world_of

_BOUND_S = 1e9
"""How far the watermarks of a trial lie behind the times of records, which thus never move them."""

NAME = "operator"
"""What the operator is called in errors and counts; its task is `operator/0`."""


class OperatorTrial:
    """An operator in a task of its own, given records one by one.

        trial = OperatorTrial(Visits(), key=lambda r: r["user"])
        assert trial.give({"user": 7}) == [{"user": 7, "n": 1}]
        trial.crash()
        assert trial.give({"user": 7}) == [{"user": 7, "n": 2}]

    Args:
        operator: an instance; the trial works on a copy, as every task does.
        key: of a record, as in `key_by`; without it the operator keeps one state.
        time: of a record, as in `watermarks`; for operators that ask for event time.
        clock_s: where the wall clock starts.
        seed: of random numbers.
        config: other fields of `causal.config.JobConfig`.

    Attributes:
        out: every row so far.
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
        given: Stream[Any] = pipeline.source("given", GeneratedSource(_never, count=0))
        if time is not None:
            given = given.watermarks("time", _time_or_mark(time), out_of_order_s=_BOUND_S).filter("records", _is_record)
        keyed = given if key is None else given.key_by(key)
        keyed.process(NAME, operator, parallelism=1).sink("out", JsonLinesSink("."))
        self._world = world_of(pipeline, {"given": []}, {}, seed, clock_s, 0, {}, 1, config)
        (self._given,) = self._world.partitions.values()
        self._given.endless = True
        task = self._world.topology.named(f"{NAME}/0")
        invariant(task is not None, "the operator has a task")
        self._task = int(task.index)  # type: ignore[union-attr]
        self._timed = time is not None
        self._seen = 0
        self._world.begin()
        self._world.settle()

    @property
    def out(self) -> list[Any]:
        """Every row so far."""
        return self.told["out"]

    @property
    def told(self) -> Told:
        """Counts, determinants and rows so far."""
        return told_of(self._world)

    @property
    def clock_s(self) -> float:
        """The wall clock."""
        return seconds_of(self._world.now_ns)

    def give(self, *records: Any) -> list[Any]:
        """The operator is given these records, one event each; returns the rows that are new."""
        self._given.add(records)
        return self._settled()

    def watermark(self, seconds: float) -> list[Any]:
        """No record with an earlier time will come; timers of event time fire; returns the rows that are new.

        Raises:
            PipelineError: the trial was not told where the time of a record is.
        """
        if not self._timed:
            raise PipelineError("the trial knows no event time; give OperatorTrial(…, time=fn)")
        return self.give({_MARK: seconds + _BOUND_S})

    def advance(self, seconds: float) -> list[Any]:
        """Time passes, and timers fire in it; returns the rows that are new."""
        until_ns = self._world.now_ns + ns_of_seconds(seconds)
        self._world.settle()
        while self._world.now_ns < until_ns:
            self._world.pass_time(until_ns)
            self._world.settle()
        return self._settled()

    def checkpoint(self) -> None:
        """Keep the state as it is now: a crash after this replays only what comes behind it."""
        self._world.checkpoint()
        self._world.settle()

    def crash(self) -> None:
        """The task dies, is restored from the last checkpoint and replays.

        Raises:
            ReplayDivergence: the replay gave other rows than those that were visible.
        """
        self._world.die(self._task)
        self._settled()

    def finish(self) -> list[Any]:
        """The input ends; returns the rows that are new."""
        self._given.endless = False
        self._world.run()
        return self._settled()

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
    """An element of the source that stands for what the trial is given."""
    return None
