"""The contract of a source: partitions whose elements can be read again from any position.

A partition is an ordinary input channel of a source task whose far end is outside the job, so a source
needs no log of what it read, only positions (D2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from causal.records.batch import Records

if TYPE_CHECKING:
    from typing_extensions import TypeVar as Defaulting

    R_co = Defaulting("R_co", covariant=True, default=Any)
else:
    R_co = TypeVar("R_co", covariant=True)
    """The type of the records that a source gives."""


@dataclass(frozen=True, slots=True)
class Read:
    """A run of records from the position asked for, without gaps; `ended` when the partition ends after them."""

    records: Records
    origin_ns: int
    """The `time.monotonic_ns()` when the first of them entered the job; for latency figures, which leave out 0."""
    ended: bool = False


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The name, directory and start of the job, for a source.

    `began_ns` is the `time.monotonic_ns()` at which the job began to read, the same for every incarnation of the task
    while the machine is up: a rate is counted from there.  After a restart of the machine it means nothing.
    """

    name: str
    job_directory: Path
    began_ns: int
    checkpoints: bool = True
    """Whether the job has any, so that `completed` will be called."""
    store: str = ""
    """The URL of the storage that all hosts share; empty for a job without one."""
    place_in_store: str = ""
    """The prefix of everything that this run keeps there."""


@dataclass(frozen=True, slots=True)
class Companion:
    """A process outside the dataflow that a source needs (a Spark driver): the agent runs it, again when it dies.

    The arguments "{python}" and "{job}" stand for the Python and the job's directory of the host that runs it.

    Exit status 0 means that it is done; 2 that its configuration is wrong, which ends the job with the last line
    of its standard error.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class PartitionReader(Protocol):
    """A reader of one partition.  It never blocks for longer than a disk read."""

    def read(self, position: int, count_max: int) -> Read | None:
        """Return 1 to `count_max` records from `position` (0 only with `ended`); None while there are none.

        Raises:
            Unavailable: retry later.
            CorruptData: the stored data does not match its digest.
        """
        ...

    def ready_in_s(self, position: int) -> float:
        """Return the seconds to wait before `read(position)` is worth another call."""
        ...

    def completed(self, position: int) -> None:
        """Release everything below `position`, which a complete checkpoint covers: it will not be asked for again."""
        ...

    def close(self) -> None: ...


class Source(ABC, Generic[R_co]):
    """A source, as `.source(name, …)` takes it."""

    partitions: int
    vectors = False
    """Whether its readers give `Vectors` instead of lists."""

    may_be_unreadable = False
    """Whether its readers return `operators.stage.unreadable.Unreadable` for input that is not a record."""

    bad_input_remedy = ""
    """The end of the error's line where it is none: what to do then."""

    everywhere = True
    """Whether its readers give the same on every host, so that its tasks can move to another one."""

    positions_travel = True
    """Whether a position is the same element in any job's directory, so that another job can begin with it."""

    takes_standard_input = False
    """Whether its companion reads the standard input of `causal run`, which passes it on."""

    @abstractmethod
    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        """Return a reader of one partition; called in the source task's process, once per incarnation."""

    def check(self) -> None:
        """Raise `PipelineError` for what can be known to be wrong before the job starts."""

    def check_resumed(self, name: str, job_directory: Path, rolled_back: bool) -> None:
        """Raise `PipelineError` where this source cannot continue with what the job's directory keeps of it.

        Args:
            rolled_back: the job returns to the savepoint that a later version began with.
        """

    def companions(self, name: str, job_directory: Path) -> list[Companion]:
        """Return the processes to keep running next to the job; none for most sources."""
        return []
