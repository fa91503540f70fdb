"""The recorded input of a job as the input of another one: between two positions, as fast as it is read (0059).

`plan` wraps each source of a backtest. Its readers read what the recorded job has read, from the directory that
`Source.lend` has filled, release nothing, and stop at the last recorded position. Most recorded input has no end there;
the job then ends at a savepoint, so that nothing sees an end that the recorded job did not see.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from causal.errors import CorruptData, DeterminantsLost
from causal.recorded_files import INPUT
from causal.sealed import seal, unseal
from operators.engine.checked import checked
from operators.graph import Node
from operators.source import LONG_AGO_NS, Companion, PartitionReader, Read, Source, SourceContext

FILE = "bounds.json"
WAIT_S = 3600.0
"""The time after which a reader at the end of its input is asked again, in vain."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The recorded input of one partition.

    Attributes:
        start: the position at which the new job begins.
        stop: the position after the last recorded element.
        ends: whether the partition ended there.
    """

    start: int
    stop: int
    ends: bool


@dataclass(frozen=True, slots=True)
class RecordedInput:
    """The recorded input that a job reads.

    Attributes:
        run: the run of the recorded job.
        store, place_in_store: where the recorded job keeps what all its hosts share; empty if it has one host.
        first, last: the recorded epochs.
        partitions: the bounds of each source's partitions.
    """

    run: str
    store: str
    place_in_store: str
    first: int
    last: int
    partitions: Mapping[str, Sequence[Bounds]]

    def save(self, job_directory: Path) -> None:
        """Write the bounds to the directory of the job that reads them."""
        (job_directory / INPUT / FILE).write_text(seal(asdict(self)))

    @classmethod
    def load(cls, job_directory: Path) -> RecordedInput:
        """Read what `save` has written.

        Raises:
            CorruptData: the file is damaged or missing.
        """
        path = job_directory / INPUT / FILE
        try:
            facts = unseal(path.read_text())
            partitions = {
                str(source): [Bounds(int(each["start"]), int(each["stop"]), bool(each["ends"])) for each in bounds]
                for source, bounds in facts.pop("partitions").items()
            }
            return cls(**facts, partitions=partitions)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise CorruptData(f"{path} is damaged ({problem}); start the backtest again without --resume") from None


def read_recorded(nodes: Iterable[Node]) -> None:
    """Make the sources among these operators read what is recorded; a second call has no effect."""
    for node in nodes:
        if node.kind == "source" and not isinstance(node.subject, RecordedSource):
            node.subject = RecordedSource(node.subject)


class RecordedSource(Source[Any]):
    """A source that reads what a recorded job has read."""

    def __init__(self, source: Source[Any]) -> None:
        self.source = source
        self.vectors = source.vectors
        self.may_be_unreadable = source.may_be_unreadable
        self.bad_input_remedy = source.bad_input_remedy
        self.everywhere = False
        self.asks_partitions = source.asks_partitions

    @property
    def partitions(self) -> int:
        """The number of partitions of the source."""
        return self.source.partitions

    @partitions.setter
    def partitions(self, number: int) -> None:
        self.source.partitions = number

    @property
    def defines_positions(self) -> type[Source[Any]]:
        return self.source.defines_positions

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        recorded = RecordedInput.load(context.job_directory)
        reader = checked(context.name, self.source, self.source.open(partition, _inner(context, recorded)))
        return RecordedReader(reader, recorded.partitions[context.name][partition], f"source {context.name!r}")

    def check(self) -> None:
        self.source.check()

    def check_resumed(self, name: str, job_directory: Path, rolled_back: bool) -> None:
        self.source.check_resumed(name, job_directory / INPUT, rolled_back)

    def check_readable(self, partition: int, position: int, context: SourceContext) -> None:
        self.source.check_readable(partition, position, _inner(context, RecordedInput.load(context.job_directory)))

    def lend(self, name: str, job_directory: Path, elsewhere: Path) -> bool:
        """Copy what the source has lent to the job, for those who read the backtest's input in turn."""
        shutil.copytree(job_directory / INPUT, elsewhere / INPUT, dirs_exist_ok=True)
        return True

    def companions(self, name: str, job_directory: Path) -> list[Companion]:
        return []


def _inner(context: SourceContext, recorded: RecordedInput) -> SourceContext:
    return replace(
        context,
        job_directory=context.job_directory / INPUT,
        began_ns=LONG_AGO_NS,
        store=recorded.store,
        place_in_store=recorded.place_in_store,
    )


class RecordedReader:
    """A `PartitionReader` that stops at the end of what is recorded, and releases nothing."""

    def __init__(self, reader: PartitionReader, bounds: Bounds, source: str) -> None:
        self._reader = reader
        self._bounds = bounds
        self._source = source

    def read(self, position: int, count_max: int) -> Read | None:
        left = self._bounds.stop - position
        if left <= 0:
            return Read([], time.monotonic_ns(), ended=True) if self._bounds.ends else None
        read = self._reader.read(position, min(count_max, left))
        if read is None:
            return None
        if read.ended and len(read.records) < left:
            raise DeterminantsLost(
                f"{self._source}: the input ends at position {position + len(read.records)}, but the recorded job has "
                f"read elements up to {self._bounds.stop}; restore those that are missing"
            )
        at_end = len(read.records) == left
        return Read(read.records, time.monotonic_ns(), at_end and self._bounds.ends, read.marks)

    def ready_in_s(self, position: int) -> float:
        if position >= self._bounds.stop:
            return 0.0 if self._bounds.ends else WAIT_S
        return self._reader.ready_in_s(position)

    def measured(self, position: int) -> tuple[int, int] | None:
        """Return the number of elements before `position`, and the total number."""
        start, stop = self._bounds.start, self._bounds.stop
        return min(position, stop) - start, stop - start

    def complete(self, position: int) -> bool:
        """Return whether nothing is recorded from `position` on, although the partition has not ended."""
        return position >= self._bounds.stop and not self._bounds.ends

    def completed(self, position: int) -> None:
        """Do nothing: the input belongs to the recorded job."""

    def close(self) -> None:
        self._reader.close()
