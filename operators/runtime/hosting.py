"""The host of a worker: its network and shared store, the job clock on the host, and the job's root process."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from causal.channels.partition import Partition
from causal.errors import Unavailable
from causal.ids import OUTSIDE, TaskIndex
from causal.network.host_file import HostFile, RosterFile, keys_of
from causal.network.transport import Network
from causal.process.clock import monotonic_ns, of_host, of_job, take_offset
from causal.storage.shared import Depot, insist
from causal.task.performer import Reader
from causal.topology import Channel, Topology
from operators.code_archive.archive import Archive, name_in_store, path_of
from operators.engine.plan import Plan


def network_of(directory: Path, topology: Topology) -> Network | None:
    """Return what a process needs to communicate with other hosts, or None for a job on one machine."""
    host = HostFile.load(directory)
    if host is None:
        return None

    def source_of(channel: int) -> int | None:
        return topology.channels[channel].source if channel < len(topology.channels) else None

    key, _ = keys_of(directory)
    return Network(host.address, key, RosterFile(directory).read, source_of)


def fetch_from(depot: Depot, wanted: Callable[[], bool], report: Callable[[str], None], path: str) -> bytes:
    """Read a checkpoint file from the shared store, waiting as long as the store is unavailable.

    Raises:
        Unavailable: the process was ended before the file could be read.
        CorruptData: the file is missing.
    """
    stored = insist(lambda: depot.read(path), report, wanted)
    if stored is None:
        raise Unavailable(f"{path}: the process was ended before it could be read")
    return stored


def fetch_code(depot: Depot | None, directory: Path, digest: str, report: Callable[[str], None]) -> None:
    """Read the code of a version of the job from the shared store unless it is in the job directory.

    `causal agent` has fetched the code of the version as which its host joined.  It waits as long as the store is
    unavailable; the supervisor ends a process that is no longer needed.

    Raises:
        CorruptData: the archive is missing or damaged.
    """
    if depot is not None and digest and not path_of(directory, digest).exists():
        name = name_in_store(digest)
        body = insist(lambda: depot.read(name), report, lambda: True) or b""
        Archive.received(directory, digest, body, depot.where(name))


CHECK_NS = 3_000_000_000
"""The interval between two checks for the root process."""
GONE_AFTER_CHECKS = 3


class RootWatch:
    """A watch over the root process, which holds the lock on the job directory while it is running."""

    def __init__(self, job_directory: Path) -> None:
        self._directory = job_directory
        self._due_ns = 0
        self._missing = 0

    def gone(self, now_ns: int) -> bool:
        """Return whether the root process has been missing for a while; it is checked only every `CHECK_NS`."""
        if now_ns < self._due_ns:
            return False
        self._due_ns = now_ns + CHECK_NS
        take_offset(self._directory)
        try:
            with open(self._directory / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            self._missing = 0
            return False
        except FileNotFoundError:
            pass
        self._missing += 1
        return self._missing >= GONE_AFTER_CHECKS


def began_ns(job_directory: Path) -> int:
    """Return the time at which the job began to read; the first process on each host writes it to a file."""
    path = job_directory / "began"
    try:
        with open(path, "x") as file:
            file.write(str(monotonic_ns()))
    except FileExistsError:
        pass
    for _ in range(100):
        text = path.read_text()
        if text:
            return min(int(text), monotonic_ns())
        time.sleep(0.001)
    return monotonic_ns()


def readers_of(
    plan: Plan, task: TaskIndex, partitions: Sequence[Partition], directory: Path, remote: bool
) -> dict[int, Reader]:
    """Return the readers of a task's partitions by channel; if `remote`, their times are in the job's time."""
    began = of_host(began_ns(directory))
    channels: dict[int, Channel] = {c.id: c for c in plan.topology.inputs(task) if c.source == OUTSIDE}
    readers: dict[int, Reader] = {
        each.id: plan.reader(channels[each.id], directory, began, each.delivered, each.place()) for each in partitions
    }
    return {channel: JobTimeReader(reader) for channel, reader in readers.items()} if remote else readers


class JobTimeReader:
    """A partition reader that converts the entry times of batches to the job's time."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def read(self, position: int, count_max: int) -> Any:
        """Read as the wrapped reader does."""
        batch = self._reader.read(position, count_max)
        return replace(batch, origin_ns=of_job(batch.origin_ns)) if batch is not None else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)
