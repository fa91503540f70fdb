"""The file in a job directory that describes its host, with the data that the agent and workers need to join."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from causal.errors import PipelineError
from causal.network.roster import ROSTER, KeyPair, Roster, load_key, mark_of
from causal.storage.files import replace_text

FILE = "host.json"
INCARNATION = "incarnation.json"
BEGAN = "began"
"""The file with the time at which the first source began to read; sources use it to compute which records are due."""

SIGN = "alive.json"
"""The file that a running agent renews; it states whether the agent has joined the job."""

TERM = "term"
"""The file with the highest leadership term that the host knows."""

KEY = "host.key"
"""A copy of the host's key that only its user can read; missing if the job uses unencrypted loopback connections."""


@dataclass(frozen=True, slots=True)
class HostFile:
    """The description of a host, which `causal agent` writes, and which the agent and all workers of the host read.

    Attributes:
        join: the addresses of the supervisor and its successors, in the form that `causal.network.seats` reads.
        address: the address at which other hosts reach the processes of this host.
        session: a mark that identifies the current incarnation of the host's processes.
    """

    host: str
    join: str
    address: str
    session: str
    slots: int
    zone: str
    machine: str
    labels: dict[str, str]
    version: str = ""
    """The causal-streams version on this host."""
    drain_s: float = 0.0
    """The time that the host's tasks have for moving to other hosts when the agent is asked to stop."""
    breakable: bool = True
    """Whether the dashboard may be used to kill the agent."""

    def save(self, directory: Path) -> None:
        """Replace the file atomically."""
        replace_text(directory / FILE, json.dumps(asdict(self)))

    @classmethod
    def load(cls, directory: Path) -> HostFile | None:
        """Read the file; return None in the directory of a job on one machine.

        Raises:
            PipelineError: the file is damaged.
        """
        path = directory / FILE
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as problem:
            raise PipelineError(f"{path} is damaged ({problem}); start `causal agent` again") from None


def keys_of(directory: Path) -> tuple[KeyPair | None, Roster]:
    """Return the key of the host with this job directory, and the roster; no key for loopback connections."""
    if not (directory / KEY).exists():
        return None, Roster({})
    return load_key(directory / KEY), Roster.load(directory / ROSTER)


def roster_mark(directory: Path) -> str:
    """Return the mark of the roster in a host's job directory, or "" if there is no roster."""
    path = directory / ROSTER
    return mark_of(path.read_text()) if path.exists() else ""


class RosterFile:
    """The roster in a host's job directory, which is read again after the agent has replaced it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / ROSTER
        self._mtime_ns = 0
        self._roster = Roster({})

    def read(self) -> Roster:
        """Return the current roster, or the previous one if the file cannot be read."""
        try:
            mtime_ns = self._path.stat().st_mtime_ns
            if mtime_ns != self._mtime_ns:
                self._roster, self._mtime_ns = Roster.load(self._path), mtime_ns
        except (OSError, PipelineError):
            return self._roster
        return self._roster


def read_incarnation(directory: Path, session: str) -> int:
    """Return the incarnation in which the host has joined under the mark `session`; 0 if it has not joined."""
    try:
        content = json.loads((directory / INCARNATION).read_text())
        return int(content["incarnation"]) if content["session"] == session else 0
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return 0


def save_incarnation(directory: Path, session: str, incarnation: int) -> None:
    """Store the incarnation for an agent that is restarted under the same mark."""
    replace_text(directory / INCARNATION, json.dumps({"session": session, "incarnation": incarnation}))


def save_roster(directory: Path, text: str) -> None:
    """Replace the roster file, which the processes of the host then read again."""
    replace_text(directory / ROSTER, text)


def save_began(directory: Path, began_ns: int) -> None:
    """Write the time at which the job began to read, unless another process of this host has already done so."""
    with suppress(FileExistsError), open(directory / BEGAN, "x") as file:
        file.write(str(began_ns))


def save_earlier(directory: Path, began_ns: int) -> None:
    """Replace the time at which the job began to read with an earlier one, after the clock has been restarted."""
    replace_text(directory / BEGAN, str(began_ns))


def save_sign(directory: Path, joined: bool) -> None:
    """Renew the file by which the agent shows that it is running."""
    replace_text(directory / SIGN, json.dumps({"joined": joined}))


def read_term(directory: Path) -> int:
    """Return the highest leadership term known to this host, or 0 if there is none."""
    try:
        return int((directory / TERM).read_text())
    except (FileNotFoundError, ValueError):
        return 0


def save_term(directory: Path, term: int) -> None:
    """Store the term for a restarted agent, and for the tether."""
    replace_text(directory / TERM, str(term))
