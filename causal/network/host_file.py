"""The host's own facts in its job directory: what the agent and its processes need to take part as that host."""

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
"""The file with the time at which the first source began to read: sources compute from it which records are due."""

SIGN = "alive.json"
"""The file that an agent renews as long as it lives: whether it takes part in the job."""

TERM = "term"
"""The file with the highest leadership term of which the host has heard."""

KEY = "host.key"
"""A copy of the host's key, readable by its user alone; none where a job speaks plainly over loopback."""


@dataclass(frozen=True, slots=True)
class HostFile:
    """Written by `causal agent`, read by the agent and by every worker of the host.

    Attributes:
        join: the addresses of the supervisor and its successors, as `causal.network.seats` reads them.
        address: the address at which other hosts reach the processes of this one.
        session: the mark of this life of the host's processes.
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
    """The version of the package here."""
    drain_s: float = 0.0
    """The time that the host's tasks have to move to other hosts when it is asked to end."""
    breakable: bool = True
    """Whether the operator may have the agent killed from the dashboard."""

    def save(self, directory: Path) -> None:
        """Replace the file atomically."""
        replace_text(directory / FILE, json.dumps(asdict(self)))

    @classmethod
    def load(cls, directory: Path) -> HostFile | None:
        """Read the file; None in the directory of a job on one machine.

        Raises:
            PipelineError: it is damaged.
        """
        path = directory / FILE
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as problem:
            raise PipelineError(f"{path} is damaged ({problem}); start `causal agent` again") from None


def keys_of(directory: Path) -> tuple[KeyPair | None, Roster]:
    """Return the key of the host whose job directory this is, and the roster; no key where everything is on
    loopback.
    """
    if not (directory / KEY).exists():
        return None, Roster({})
    return load_key(directory / KEY), Roster.load(directory / ROSTER)


def roster_mark(directory: Path) -> str:
    """Return the mark of the roster in a host's job directory; empty if there is none."""
    path = directory / ROSTER
    return mark_of(path.read_text()) if path.exists() else ""


class RosterFile:
    """The roster in a host's job directory, read again when the agent has replaced it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / ROSTER
        self._mtime_ns = 0
        self._roster = Roster({})

    def read(self) -> Roster:
        """Return the roster as it is now; as it was before where the file cannot be read."""
        try:
            mtime_ns = self._path.stat().st_mtime_ns
            if mtime_ns != self._mtime_ns:
                self._roster, self._mtime_ns = Roster.load(self._path), mtime_ns
        except (OSError, PipelineError):
            return self._roster
        return self._roster


def read_incarnation(directory: Path, session: str) -> int:
    """Return the incarnation in which the host has joined with this mark; 0 if it has not."""
    try:
        content = json.loads((directory / INCARNATION).read_text())
        return int(content["incarnation"]) if content["session"] == session else 0
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return 0


def save_incarnation(directory: Path, session: str, incarnation: int) -> None:
    """Remember the incarnation for an agent that is started again in the same session."""
    replace_text(directory / INCARNATION, json.dumps({"session": session, "incarnation": incarnation}))


def save_roster(directory: Path, text: str) -> None:
    """Replace the roster, which the processes of the host read again."""
    replace_text(directory / ROSTER, text)


def save_began(directory: Path, began_ns: int) -> None:
    """Write the time at which the job began to read, unless a process of this host has."""
    with suppress(FileExistsError), open(directory / BEGAN, "x") as file:
        file.write(str(began_ns))


def save_earlier(directory: Path, began_ns: int) -> None:
    """Replace the time at which the job began to read by that of a clock which was restarted since."""
    replace_text(directory / BEGAN, str(began_ns))


def save_sign(directory: Path, joined: bool) -> None:
    """Renew the host's sign of life."""
    replace_text(directory / SIGN, json.dumps({"joined": joined}))


def read_term(directory: Path) -> int:
    """Return the highest leadership term of which this host has heard; 0 for none."""
    try:
        return int((directory / TERM).read_text())
    except (FileNotFoundError, ValueError):
        return 0


def save_term(directory: Path, term: int) -> None:
    """Remember the term for an agent that is started again, and for the tether."""
    replace_text(directory / TERM, str(term))
