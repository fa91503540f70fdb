"""The place of a source's ingest log: in the job's directory on its machine, or in the store that all hosts share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from causal.storage.directory import Directory
from causal.storage.shared import Depot
from operators.ingest.contract import ReadableLog
from operators.ingest.earlier_log import adopt
from operators.ingest.ingest_log import STORE_LOOK_S, IngestLog
from operators.ingest.read_ahead import ReadAhead

FOLDER = "ingest"


@dataclass(frozen=True, slots=True)
class IngestPlace:
    """The place of one source's log.

    Attributes:
        job_directory: of the job, on this host.
        name: of the source.
        store, prefix: the URL of the shared store and the place of the run in it; empty for the job's directory.
        resumed: the batch after which the driver has begun, -1 for none.
    """

    job_directory: Path
    name: str
    channels: int
    store: str = ""
    prefix: str = ""
    resumed: int = -1

    @property
    def directory(self) -> Path:
        """The files on this host: of the log, or of the driver alone."""
        return self.job_directory / FOLDER / self.name

    @property
    def folder(self) -> str:
        """The folder of the log, in the job's directory or in its place in the store."""
        return f"{FOLDER}/{self.name}"

    def open(self) -> IngestLog:
        """Return the log, to write; the client of a store has threads, so the process must not fork after this."""
        if not self.store:
            return self._in_directory()
        depot = Depot(self.store, self.prefix, proof="")
        return IngestLog(depot, self.folder, self.channels, self.resumed, STORE_LOOK_S)

    def _in_directory(self) -> IngestLog:
        adopt(self.directory)  # a reader of a resumed job may be the first to open it
        return IngestLog(Directory(self.job_directory), self.folder, self.channels, self.resumed)

    def open_to_read(self, partition: int) -> ReadableLog:
        """Return the log as the reader of a partition uses it: none of its methods waits for longer than a disk
        read.
        """
        if not self.store:
            return self._in_directory()
        where = f"{self.store}: {self.prefix}/{self.folder}"
        return ReadAhead(self.open, self.channels, self.name, where, reports=partition == 0)
