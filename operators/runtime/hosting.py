"""The network and the shared store of a worker whose job is on several hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from causal.errors import Unavailable
from causal.shell.depot import Depot, insist
from causal.shell.host_file import HostFile, RosterFile, keys_of
from causal.shell.transport import Network
from causal.topology import Topology


def network_of(directory: Path, topology: Topology) -> Network | None:
    """Returns what a process needs to speak to other hosts; None in the directory of a job on one machine."""
    host = HostFile.load(directory)
    if host is None:
        return None

    def source_of(channel: int) -> int | None:
        return topology.channels[channel].source if channel < len(topology.channels) else None

    key, _ = keys_of(directory)
    return Network(host.address, key, RosterFile(directory).read, source_of)


def fetch_from(depot: Depot, wanted: Callable[[], bool], report: Callable[[str], None], path: str) -> bytes:
    """Reads a file of a checkpoint from the shared store, however long that is unavailable.

    Raises:
        Unavailable: the process ends before it could be read.
        CorruptData: it is not there.
    """
    stored = insist(lambda: depot.read(path), report, wanted)
    if stored is None:
        raise Unavailable(f"{path}: the process was ended before it could be read")
    return stored
