"""The contract of a source: partitions whose elements can be read again from any position.

A partition is an ordinary input channel of a source task whose sender is outside the job, so a source logs only
positions, not the data that it read (D2).
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
    """Consecutive records from the requested position, without gaps; `ended` if the partition ends after them."""

    records: Records
    origin_ns: int
    """The `time.monotonic_ns()` at which the first of them entered the job; latency metrics ignore 0."""
    ended: bool = False


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The job's name, directory and start time, for a source.

    `began_ns` is the `time.monotonic_ns()` at which the job began to read. It is the same for every incarnation of the
    task while the machine is up, so that rates are measured from it. After a reboot of the machine it is meaningless.
    """

    name: str
    job_directory: Path
    began_ns: int
    checkpoints: bool = True
    """Whether the job takes checkpoints, so that `completed` will be called."""
    store: str = ""
    """The URL of the storage that all hosts share; empty for a job without one."""
    place_in_store: str = ""
    """The prefix of everything that this run keeps there."""


@dataclass(frozen=True, slots=True)
class Companion:
    """A process outside the dataflow that a source needs, such as a Spark driver. The agent restarts it when it dies.

    The arguments "{python}" and "{job}" stand for the Python interpreter and the job directory on the host that runs
    it.

    Exit status 0 means that the process has finished. Exit status 2 means that its configuration is wrong: the job then
    ends with the last line of the process's standard error.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class PartitionReader(Protocol):
    """A reader of one partition. Its methods never block for longer than a disk read."""

    def read(self, position: int, count_max: int) -> Read | None:
        """Return 1 to `count_max` records from `position` (0 only with `ended`), or None while there are none.

        Raises:
            Unavailable: the read can be retried later.
            CorruptData: the stored data does not match its digest.
        """
        ...

    def ready_in_s(self, position: int) -> float:
        """Return the number of seconds before another call of `read(position)` is worthwhile."""
        ...

    def completed(self, position: int) -> None:
        """Release everything before `position`: a complete checkpoint covers it, so it will not be read again."""
        ...

    def close(self) -> None: ...


class Source(ABC, Generic[R_co]):
    """A source, as accepted by `.source(name, …)`."""

    partitions: int
    vectors = False
    """Whether its readers return `Vectors` instead of lists."""

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
        """Return a reader of one partition. This is called in the source task's process, once per incarnation."""

    def check(self) -> None:
        """Raise `PipelineError` for mistakes that can be detected before the job starts."""

    def check_resumed(self, name: str, job_directory: Path, rolled_back: bool) -> None:
        """Raise `PipelineError` if this source cannot continue from the data it keeps in the job's directory.

        Args:
            rolled_back: whether the job returns to the savepoint from which a later version started.
        """

    def companions(self, name: str, job_directory: Path) -> list[Companion]:
        """Return the processes that must run alongside the job; most sources need none."""
        return []
