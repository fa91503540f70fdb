"""Sources that generate their elements with a pure function, individually or one slice at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, ClassVar

from causal.errors import CausalError, OperatorFailed, PipelineError
from causal.network.host_file import save_earlier
from causal.process.clock import of_job
from causal.records.vectors import require_arrow
from operators.functions import check_function
from operators.graph import caller
from operators.source import PartitionReader, R_co, Read, Source, SourceContext
from operators.tracebacks import described, location

Slice = Callable[[int, int, int], Any]
"""A function of (partition, start, stop) that returns the elements start to stop - 1."""

SMOOTH_RPS = 50_000
"""The rate up to which a partition gives each element when it is due; above, in steps: a task that asks for the next
few elements as soon as it has sent the last ones has batches of them, and spends all of a core on the batches."""
STEP_NS, STEP_NS_MAX = 1_000_000, 10_000_000
"""A step of a partition just above `SMOOTH_RPS`, in proportion of one that is faster, and the longest."""

AHEAD_NS = 1_000_000_000
"""The time, beyond its interval, by which an element that follows one that was read may be ahead: clocks of hosts
differ."""


class SequenceSource(Source[R_co]):
    """A source whose elements `start` to `stop - 1` of a partition are returned by `read(partition, start, stop)`.

    The function must be pure. The source is meant for data that already exists in slices: files, arrays, benchmarks.

    Args:
        count: the number of elements per partition; None for an endless source.
        rate: the number of elements per second over all partitions; None for as fast as they are consumed.
    """

    _parameters: ClassVar[tuple[str, ...]] = ("partition", "start", "stop")
    """The parameters of the function that the source receives."""

    def __init__(
        self,
        read: Callable[[int, int, int], Sequence[R_co]],
        count: int | None,
        partitions: int = 1,
        rate: float | None = None,
    ) -> None:
        where = caller()
        name = type(self).__name__
        if not callable(read):
            raise PipelineError(f"{where}: {name} was given a {type(read).__name__}; pass a function")
        check_function(f"{where}: {name} was given", read, self._parameters)
        if type(partitions) is not int or partitions < 1:
            raise PipelineError(f"{where}: {name} has partitions {partitions!r}; use a whole number from 1")
        if count is not None and (type(count) is not int or count < 0):
            raise PipelineError(f"{where}: {name} has count {count!r}; use a whole number from 0, or None for no end")
        if rate is not None and (isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < 1e9):
            raise PipelineError(f"{where}: {name} has rate {rate!r}; use records per second, or None for no limit")
        self.partitions = partitions
        self.count = count
        self.rate = rate
        self._read = read

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        interval_ns = 0.0 if self.rate is None else self.partitions / self.rate * 1e9
        return _Reader(self._slice(context.name), partition, self.count, interval_ns, context)

    def _slice(self, name: str) -> Slice:
        return self._checked(name, self._read)

    def _checked(self, name: str, ask: Callable[[int, int, int], Any]) -> Slice:
        def read(partition: int, start: int, stop: int) -> Any:
            try:
                values = ask(partition, start, stop)
                if len(values) != stop - start:
                    count = f"{len(values)} element{'s' * (len(values) != 1)}"
                    raise ValueError(f"read returned {count} instead of {stop - start}")
            except CausalError:
                raise
            except Exception as problem:
                raise OperatorFailed(
                    _failed(name, partition, f"elements {start} to {stop - 1}", "read(partition, start, stop)", problem)
                ) from problem
            return self._elements(values)

        return read

    def _elements(self, values: Any) -> Any:
        """Return the elements in the form that the runtime accepts."""
        return values if type(values) is list else list(values)


class ArrowSource(SequenceSource[Any]):
    """A source of vectors: `read(partition, start, stop)` returns a pyarrow RecordBatch, a Table or a dict of columns.

    Args:
        count: the number of rows per partition; None for an endless source.
        rate: the number of rows per second over all partitions; None for as fast as they are consumed.
    """

    vectors = True

    def __init__(
        self,
        read: Callable[[int, int, int], Any],
        count: int | None,
        partitions: int = 1,
        rate: float | None = None,
    ) -> None:
        require_arrow(f"{caller()}: {type(self).__name__}")
        super().__init__(read, count, partitions, rate)

    def _slice(self, name: str) -> Slice:
        read = self._read

        from operators.records.exact_types import exact_vectors

        def read_vectors(partition: int, start: int, stop: int) -> Any:
            return exact_vectors(read(partition, start, stop))

        return self._checked(name, read_vectors)

    def _elements(self, values: Any) -> Any:
        return values


class GeneratedSource(SequenceSource[R_co]):
    """A source whose element i of partition p is `make(p, i)`, a pure function.

    Args:
        count: the number of elements per partition; None for an endless source.
        rate: the number of elements per second over all partitions; None for as fast as they are consumed.
    """

    _parameters = ("partition", "i")

    def __init__(
        self, make: Callable[[int, int], R_co], count: int | None, partitions: int = 1, rate: float | None = None
    ) -> None:
        super().__init__(make, count, partitions, rate)  # type: ignore[arg-type]  # `_slice` calls it with other arguments
        self._make = make

    def _slice(self, name: str) -> Slice:
        make = self._make

        def read(partition: int, start: int, stop: int) -> list[Any]:
            values: list[Any] = []
            try:
                values.extend(map(make, repeat(partition), range(start, stop)))
                if len(values) < stop - start:
                    make(partition, start + len(values))  # map() ends at a StopIteration; this call raises it
                    raise RuntimeError("StopIteration was raised")
            except CausalError:
                raise
            except Exception as problem:
                element = f"element {start + len(values)}"
                raise OperatorFailed(_failed(name, partition, element, "make(partition, i)", problem)) from problem
            return values

        return read


def _failed(name: str, partition: int, elements: str, function: str, problem: Exception) -> str:
    where = location(problem)
    at = f" at {where}" if where else ""
    return f"source {name!r}, partition {partition}, {elements}: {described(problem)}{at}; correct {function}"


class _Reader:
    """A reader of one partition. With a rate, element i is due `i * interval_ns` after the job began to read.

    At a high rate, the reader returns elements only at the end of each time step: an element that becomes due during a
    step waits for the end of the step.

    If a position is due far in the future, it was read according to another clock: the machine was restarted, or the
    job was moved. The reader then resets the job's start to the time at which this clock would have reached that
    position.
    """

    def __init__(
        self, read: Slice, partition: int, count: int | None, interval_ns: float, context: SourceContext
    ) -> None:
        self._slice = read
        self._partition = partition
        self._count = count
        self._interval_ns = interval_ns
        self._began_ns = context.began_ns
        self._directory = context.job_directory
        self._sure = not interval_ns
        """Whether the time at which the job began is of this clock."""
        faster = 1e9 / SMOOTH_RPS / interval_ns if interval_ns else 0.0
        self._step_ns = min(STEP_NS_MAX, int(STEP_NS * faster)) if faster > 1 else 1

    def read(self, position: int, count_max: int) -> Read | None:
        now_ns = time.monotonic_ns()
        stop = position + count_max if self._count is None else min(position + count_max, self._count)
        ended = self._count is not None and stop >= self._count
        if ended and position >= stop:
            return Read([], now_ns, ended=True)
        origin_ns = now_ns
        if self._interval_ns:
            self._reckon(position, now_ns)
            origin_ns = max(1, self._due_ns(position))
            if self._step_end_ns(position) > now_ns:
                return None
            elapsed_ns = now_ns - self._began_ns
            due = int((elapsed_ns - elapsed_ns % self._step_ns) / self._interval_ns) + 1
            if due < stop:
                stop, ended = max(due, position + 1), False
        return Read(self._slice(self._partition, position, stop), origin_ns, ended)

    def measured(self, position: int) -> tuple[int, int] | None:
        """Return the number of elements before `position`, and the total number, or None for an endless source."""
        return None if self._count is None else (min(position, self._count), self._count)

    def ready_in_s(self, position: int) -> float:
        if not self._interval_ns or (self._count is not None and position >= self._count):
            return 0.0
        now_ns = time.monotonic_ns()
        self._reckon(position, now_ns)
        return max(0.0, (self._step_end_ns(position) - now_ns) / 1e9)

    def _reckon(self, position: int, now_ns: int) -> None:
        """Ensure, before the first read, that the rate continues from the position of that read."""
        if not self._sure and position and self._due_ns(position) > now_ns + self._interval_ns + AHEAD_NS:
            self._began_ns = now_ns - int(position * self._interval_ns)
            with suppress(OSError):  # without the file, the next process computes the value from an earlier checkpoint
                save_earlier(self._directory, of_job(self._began_ns))
        self._sure = True

    def _due_ns(self, position: int) -> int:
        return self._began_ns + int(position * self._interval_ns)

    def _step_end_ns(self, position: int) -> int:
        """Return the end of the time step in which the element at `position` is due."""
        after_ns = self._due_ns(position) - self._began_ns
        return self._began_ns + -(-after_ns // self._step_ns) * self._step_ns

    def completed(self, position: int) -> None:
        """Do nothing, because a generated source stores no data."""

    def close(self) -> None:
        """Do nothing, because no resources are open."""
