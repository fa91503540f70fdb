"""A sink whose rows `causal run` prints to its standard output exactly once, even if tasks are killed."""

from __future__ import annotations

from pathlib import Path

from causal.errors import PipelineError, Unavailable
from causal.ports import Bundle, SinkStore
from causal.storage.console_rows import DIRECTORY
from causal.storage.punch_hole import taken_bytes
from operators.sinks.contract.account import Account
from operators.sinks.contract.sink import Sink
from operators.sinks.files.jsonlines import JsonLinesSink, JsonLinesStore

KEPT_BYTES_MAX = 1 << 30
KEPT_BYTES_LEAST = 1 << 16
"""A lower bound above the block of any file system: only whole blocks are freed."""


class ConsoleSink(Sink):
    """A sink whose rows `causal run` prints as JSON, one per line.

    Tasks run in processes without a terminal. They write their rows into the job directory, as `JsonLinesSink` does;
    `causal run` follows the files and frees the space of printed rows. Each row is printed once; `--resume` prints the
    rows that were not printed before. A row is printed twice only if `causal run` itself is killed after printing the
    row but before recording this. The rows of each task are printed in order. If the output is read more slowly than
    rows arrive, the job is throttled.

    Needs: nothing.
    Readers: the standard output of `causal run`.
    Step: as `JsonLinesSink`; printing follows it.
    Fence: as `JsonLinesSink`.
    Server: –.
    Power: as the job.
    Limits: a row is printed again only if `causal run` itself was killed.

    Args:
        kept_bytes_max: the maximum number of bytes of rows per task that may wait on disk to be printed; beyond this,
            the job is throttled.
    """

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        if kept_bytes_max < KEPT_BYTES_LEAST:
            raise PipelineError(
                f"ConsoleSink: kept_bytes_max is {kept_bytes_max!r}; use a number of bytes from {KEPT_BYTES_LEAST} on"
            )
        self.kept_bytes_max = kept_bytes_max

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task, in the job directory."""
        sink = JsonLinesSink(job_directory / DIRECTORY, durability=self.durability)
        sink.private = True
        return ConsoleStore(sink, task, self.kept_bytes_max)


class ConsoleStore(JsonLinesStore):
    """The store of rows that wait to be printed, up to `kept_bytes_max` bytes."""

    def __init__(self, sink: JsonLinesSink, task: str, kept_bytes_max: int) -> None:
        super().__init__(sink, task)
        self._kept_bytes_max = kept_bytes_max

    def limit(self, rows: int) -> str:
        """See `causal.ports.ReturningStore.limit`."""
        return "withdraws rows only until the first checkpoint of a version is complete"

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`; raises `Unavailable` while too many rows are waiting."""
        if self._rows >= 0 and (taken := taken_bytes(self._rows)) > self._kept_bytes_max:
            raise Unavailable(
                f"{self._path}: {taken} bytes of rows wait to be printed, but kept_bytes_max is "
                f"{self._kept_bytes_max}; read the output of causal run faster, use another sink, or put the "
                "job directory on a file system that can free part of a file (ext4, xfs, btrfs, tmpfs)"
            )
        super().write(bundle)

    def _obstacle(self, session: None, account: Account, next_: int) -> str:
        if next_ == account.next or next_ in [mark.next for mark in account.marks]:
            return ""
        return "cannot return to lines of the console that may have been printed and removed"
