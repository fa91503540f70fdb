"""The contract of a source: partitions whose elements can be read again from any position.

A partition is an ordinary input channel of a source task, with a sender outside the job. A source therefore logs only
positions, not the data that it has read (D2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from causal.cut import Mark
from causal.records.batch import Records

if TYPE_CHECKING:
    from typing_extensions import TypeVar as Defaulting

    R_co = Defaulting("R_co", covariant=True, default=Any)
else:
    R_co = TypeVar("R_co", covariant=True)
    """The type of the records that a source gives."""

LONG_AGO_NS = -(1 << 62)
"""The `began_ns` of a job for which every element is due."""


@dataclass(frozen=True, slots=True)
class Read:
    """Consecutive records from the requested position, without gaps; `ended` is true if the partition then ends."""

    records: Records
    origin_ns: int
    """The `time.monotonic_ns()` at which the first of the records entered the job; latency metrics ignore 0."""
    ended: bool = False
    marks: Sequence[Mark] = ()
    """The mark, for each record, with which the element after it is found again; none if positions suffice.

    Without records, one mark is that of the requested position itself.
    """


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The job's name, directory and start time, for a source.

    `began_ns` is the `time.monotonic_ns()` at which the job began to read. It is the same for every incarnation of the
    task until the machine reboots, so rates are measured from it. After a reboot it is meaningless.
    """

    name: str
    job_directory: Path
    began_ns: int
    checkpoints: bool = True
    """Whether the job takes checkpoints, so that `completed` will be called."""
    store: str = ""
    """The URL of the storage that all hosts share; empty if the job has none."""
    place_in_store: str = ""
    """The prefix of everything that this run stores there."""
    position: int = 0
    """The position in the partition at which the checkpoint is from which the task continues."""
    mark: Mark | None = None
    """The mark that the checkpoint keeps for that position; None if the readers have given none."""


@dataclass(frozen=True, slots=True)
class Companion:
    """A process outside the dataflow that a source needs, such as a Spark driver. The agent restarts it if it dies.

    The arguments "{python}" and "{job}" stand for the Python interpreter and the job directory on the host where it
    runs.

    Exit status 0 means that the process has finished. Exit status 2 means that its configuration is wrong: the job then
    ends with the last line of the process's standard error.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class PartitionReader(Protocol):
    """A reader of one partition. Its methods never block for longer than a disk read."""

    def read(self, position: int, count_max: int) -> Read | None:
        """Return 1 to `count_max` records from `position`, or None while none are available.

        There may be 0 records with `ended`, or with the mark of the position.

        Raises:
            Unavailable: the read can be retried later.
            CorruptData: the stored data does not match its digest.
        """
        ...

    def ready_in_s(self, position: int) -> float:
        """Return the number of seconds after which another call of `read(position)` is worthwhile."""
        ...

    def completed(self, position: int) -> None:
        """Release everything before `position`: a complete checkpoint covers it, so it will not be read again."""
        ...

    def close(self) -> None: ...


class Source(ABC, Generic[R_co]):
    """A source, as accepted by `.source(name, …)`."""

    partitions: int
    vectors = False
    """Whether the source's readers return `Vectors` instead of lists."""

    may_be_unreadable = False
    """Whether the readers return `operators.stage.unreadable.Unreadable` for input that is not a valid record."""

    bad_input_remedy = ""
    """The end of the error message for input that is not a valid record, which states the remedy."""

    everywhere = True
    """Whether the readers return the same data on every host, so that the source's tasks can move to another host."""

    positions_travel = True
    """Whether a position means the same element in every job directory, so that another job can begin with it."""

    asks_partitions = False
    """Whether the readers' system knows the number of partitions: `causal run` asks for it by reading `partitions`, and
    fixes it for all processes of the job by setting `partitions`."""

    takes_standard_input = False
    """Whether the source's companion reads the standard input of `causal run`, which passes it on."""

    @abstractmethod
    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        """Return a reader of one partition. This is called in the source task's process, once per incarnation."""

    @property
    def defines_positions(self) -> type[Source[Any]]:
        """The class that defines what a position means."""
        return type(self)

    def check(self) -> None:
        """Raise `PipelineError` for mistakes that can be detected before the job starts."""

    def check_resumed(self, name: str, job_directory: Path, rolled_back: bool) -> None:
        """Raise `PipelineError` if this source cannot continue from the data that it keeps in the job directory.

        Args:
            rolled_back: whether the job returns to the savepoint from which a later version started.
        """

    def check_readable(self, partition: int, position: int, context: SourceContext) -> None:
        """Raise `PipelineError` if a partition cannot be read from `position` any more, to which a job will return.

        A checkpoint has covered the position, so that `PartitionReader.completed` may have released it since.
        """

    def lend(self, name: str, job_directory: Path, elsewhere: Path) -> bool:
        """Return whether readers with `elsewhere` as their job directory can read everything that the job has read.

        Files that they read in the job directory are copied first. Nothing is written to the job directory.
        """
        return self.positions_travel and not self.companions(name, job_directory)

    def continues(self, earlier: Source[Any]) -> bool:
        """Return whether the companions that were started for an earlier version of this source can work for it."""
        return False

    def companions(self, name: str, job_directory: Path) -> list[Companion]:
        """Return the processes that must run in addition to the job; most sources need none."""
        return []
