"""The location of a source's ingest log: the job directory on one machine, or the store that all hosts share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from causal.errors import PipelineError
from causal.storage.directory import Directory
from causal.storage.shared import Depot
from operators.ingest.contract import ReadableLog
from operators.ingest.earlier_log import adopt
from operators.ingest.ingest_log import STORE_LOOK_S, IngestLog
from operators.ingest.read_ahead import ReadAhead

FOLDER = "ingest"


@dataclass(frozen=True, slots=True)
class IngestPlace:
    """The location of one source's log.

    Attributes:
        job_directory: the job directory on this host.
        name: the name of the source.
        store, prefix: the URL of the shared store and the run's prefix in it; empty if the log is in the job directory.
        resumed: the batch after which the driver began; -1 for none.
    """

    job_directory: Path
    name: str
    channels: int
    store: str = ""
    prefix: str = ""
    resumed: int = -1

    @property
    def directory(self) -> Path:
        """The directory on this host for the log's files or, if the log is in a store, for the driver's files."""
        return self.job_directory / FOLDER / self.name

    @property
    def folder(self) -> str:
        """The folder of the log, relative to the job directory or to the run's prefix in the store."""
        return f"{FOLDER}/{self.name}"

    def open(self) -> IngestLog:
        """Return the log for writing; a store's client starts threads, so the process must not fork afterwards."""
        if not self.store:
            return self._in_directory()
        depot = Depot(self.store, self.prefix, proof="")
        return IngestLog(depot, self.folder, self.channels, self.resumed, STORE_LOOK_S)

    def _in_directory(self) -> IngestLog:
        adopt(self.directory)  # the reader of a resumed job may be the first to open the log
        return IngestLog(Directory(self.job_directory), self.folder, self.channels, self.resumed)

    def check_readable(self, channel: int, position: int) -> None:
        """Raise `PipelineError` if the log does not have the rows of a channel from `position` on."""
        log = self.open()
        begins, ends = log.kept_rows(channel)
        if position > ends:
            raise PipelineError(
                f"source {self.name!r}, partition {channel}: the job has read {position:,} records, but {log.where} "
                f"has {ends:,}: the log is on another host, or was removed or replaced; restore it"
            )
        if position < begins:
            raise PipelineError(
                f"source {self.name!r}, partition {channel}: {begins - position:,} records since the savepoint are no "
                "longer kept (kept_input_bytes_max), so they cannot be processed again; resume with the savepoint's "
                "code as an upgrade instead, which keeps the current rows and state"
            )

    def open_to_read(self, partition: int) -> ReadableLog:
        """Return the log for a partition's reader; none of its methods waits for longer than a disk read."""
        if not self.store:
            return self._in_directory()
        where = f"{self.store}: {self.prefix}/{self.folder}"
        return ReadAhead(self.open, self.channels, self.name, where, reports=partition == 0)
