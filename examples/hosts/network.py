"""Hosts on one machine: a network namespace each, joined by a bridge in another one, that can be cut and healed.

Needs root and `ip` (Debian's iproute2); `missing` lists missing requirements.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

SUBNET = "10.77.0"
CLOCK_STEP_S = 100_000
"""The monotonic clocks of two hosts differ by at least this: a comparison of them is seen immediately."""
_serials = itertools.count()  # the names of two networks of one process differ


def missing() -> str | None:
    """Return what this machine lacks for hosts; None if it lacks nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "unshare"):
        if shutil.which(program) is None:
            return f"`{program}` is not installed (Debian: iproute2, util-linux)"
    name = f"causal-probe-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "network namespaces cannot be made here"
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    if not Path("/proc/self/timens_offsets").exists():
        return "the kernel has no time namespaces"
    return None


class Network:
    """Namespaces for some hosts, and the bridge between them; `close` removes all of it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._tag = f"c{os.getpid() % 100_000}-{next(_serials)}"
        self._hub = f"{self._tag}-hub"
        self._names = list(names)
        try:
            self._lay()
        except BaseException:
            self.close()  # an incomplete network is of no use, and its owner never sees it
            raise

    def _lay(self) -> None:
        self._add(self._hub)
        self._in(self._hub, "link", "add", "name", "hub", "type", "bridge")
        self._in(self._hub, "link", "set", "hub", "up")
        for place, name in enumerate(self._names, 1):
            space = self.space(name)
            self._add(space)
            self._in(self._hub, "link", "add", f"v{place}", "type", "veth", "peer", "name", "eth0", "netns", space)
            self._in(self._hub, "link", "set", f"v{place}", "master", "hub", "up")
            self._in(space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            self._in(space, "link", "set", "lo", "up")
            self._in(space, "link", "set", "eth0", "up")

    def address(self, name: str) -> str:
        """Return the address of a host."""
        return f"{SUBNET}.{self._names.index(name) + 1}"

    def command(self, name: str, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs a program on a host, with its network and its clock."""
        clock = str(self.clock_s(name))
        enter = ["ip", "netns", "exec", self.space(name), "unshare", "--kill-child", "--time", "--monotonic", clock]
        return [*enter, "--", *argv]

    def clock_s(self, name: str) -> int:
        """Return the lead of the monotonic clock of a host over that of this process."""
        return CLOCK_STEP_S * (self._names.index(name) + 1)

    def clock_ns(self, name: str, at_ns: int) -> int:
        """Convert a time of this process's monotonic clock to that of a host."""
        return at_ns + self.clock_s(name) * 1_000_000_000

    def processes(self, name: str) -> list[int]:
        """Return the processes on a host."""
        listed = subprocess.run(["ip", "netns", "pids", self.space(name)], capture_output=True, text=True, check=True)
        return [int(pid) for pid in listed.stdout.split()]

    def cut(self, name: str) -> None:
        """Cut a host off: packets vanish in both directions, without any sign."""
        self._in(self._hub, "link", "set", f"v{self._names.index(name) + 1}", "nomaster")

    def heal(self, name: str) -> None:
        """Connect a host again."""
        self._in(self._hub, "link", "set", f"v{self._names.index(name) + 1}", "master", "hub")

    def cut_one_way(self, source: str, target: str) -> None:
        """Drop packets from one host to another; those of the other direction arrive."""
        self._in(self.space(source), "route", "add", "blackhole", f"{self.address(target)}/32")

    def heal_one_way(self, source: str, target: str) -> None:
        self._in(self.space(source), "route", "del", "blackhole", f"{self.address(target)}/32")

    def space(self, name: str) -> str:
        """Return the name of the network namespace of a host."""
        return f"{self._tag}-{name}"

    def _add(self, space: str) -> None:
        subprocess.run(["ip", "netns", "add", space], check=True)

    def _in(self, space: str, *arguments: str) -> None:
        subprocess.run(["ip", "-n", space, *arguments], check=True)

    def close(self) -> None:
        for space in (*map(self.space, self._names), self._hub):
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
