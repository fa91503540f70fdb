"""A sink whose rows `causal run` prints on its standard output, each once, also when tasks are killed."""

from __future__ import annotations

from pathlib import Path

from causal.errors import PipelineError, Unavailable
from causal.ports import Bundle, SinkStore
from causal.storage.punch_hole import taken_bytes
from operators.sinks.contract.sink import Sink
from operators.sinks.files.jsonlines import JsonLinesSink, JsonLinesStore

CONSOLE = "console"
"""The directory, in that of the job, of rows until they are printed, in a `.jsonl` file per sink task."""
KEPT_BYTES_MAX = 1 << 30
KEPT_BYTES_LEAST = 1 << 16
"""A lower bound above the block of any file system: only whole blocks are freed."""


class ConsoleSink(Sink):
    """A sink whose rows `causal run` prints as JSON, a line each.

    Tasks run in processes without a terminal. They write their rows, as `JsonLinesSink` does, into the directory of the
    job, and `causal run` follows the files, and frees the space of printed rows. A row is printed once, by `--resume`
    too what was not printed before; twice only if `causal run` itself was killed in between. Rows of one task come in
    order. Where the output is read more slowly than rows arrive, the job is throttled.

    Needs: nothing.
    Readers: the standard output of `causal run`.
    Step: as `JsonLinesSink`; printing follows it.
    Fence: as `JsonLinesSink`.
    Server: –.
    Power: as the job.
    Limits: a row is printed again only if `causal run` itself was killed.

    Args:
        kept_bytes_max: rows of a task that may wait to be printed, on the disk; more of them are back-pressure.
    """

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        if kept_bytes_max < KEPT_BYTES_LEAST:
            raise PipelineError(
                f"ConsoleSink: kept_bytes_max is {kept_bytes_max!r}; give a number of bytes from {KEPT_BYTES_LEAST} on"
            )
        self.kept_bytes_max = kept_bytes_max

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task, in the directory of the job."""
        sink = JsonLinesSink(job_directory / CONSOLE, durability=self.durability)
        sink.private = True
        return ConsoleStore(sink, task, self.kept_bytes_max)


class ConsoleStore(JsonLinesStore):
    """The store of rows that wait to be printed, up to `kept_bytes_max`."""

    def __init__(self, sink: JsonLinesSink, task: str, kept_bytes_max: int) -> None:
        super().__init__(sink, task)
        self._kept_bytes_max = kept_bytes_max

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`; a bundle is `Unavailable` while too many wait before it."""
        if self._rows >= 0 and (taken := taken_bytes(self._rows)) > self._kept_bytes_max:
            raise Unavailable(
                f"{self._path}: {taken} bytes of rows wait to be printed, kept_bytes_max is {self._kept_bytes_max}; "
                "read the output of causal run faster, give the rows another sink, or the job a directory on a file "
                "system that can give back a part of a file (ext4, xfs, btrfs, tmpfs)"
            )
        super().write(bundle)
