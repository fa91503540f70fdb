"""The commands that the supervisor sends to a worker, each a control message of one kind.

A command may come twice, late or for a task that the worker no longer has; `operators.runtime.membership` decides what
it means then.  Fields with their default value are not sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct, ValidationError, convert, structs

from causal.errors import PeerViolation

Natural = Annotated[int, Meta(ge=0)]
EXTENTS_MAX = 100_000
Extents = Annotated[tuple[tuple[Natural, Natural, Natural], ...], Meta(max_length=EXTENTS_MAX)]
"""The (task, epoch, bytes) of each."""

FILES_MAX = 10_000

TERM = "term"
"""The key of the leadership term in every message of a supervisor of several hosts."""

SnapshotPath = Annotated[str, Meta(pattern=r"(?s)\Acheckpoints/(?!(.*/)?\.\.(/|\Z))[^\0]+\Z")]
"""A path relative to the job's directory, below its `checkpoints`."""

Files = Annotated[tuple[tuple[SnapshotPath, Natural, str], ...], Meta(max_length=FILES_MAX)]
"""The (path, size, digest in hex) of each file that restores one task's state, oldest first."""


class Command(Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """A command; `message` returns it as it is sent.

    Attributes:
        users: names of the fields that hold a value of the user's, which is sent as it is.
    """

    users: ClassVar[frozenset[str]] = frozenset()

    def message(self) -> dict[str, Any]:
        """Return the map that `read_command` reads; only in fields of `users` may it hold a tuple."""
        facts = {"kind": self.__struct_config__.tag}
        for each in _fields(type(self)):
            value = getattr(self, each.name)
            if value is not each.default:
                facts[each.name] = value if each.name in self.users else _listed(value)
        return facts


@cache
def _fields(kind: type[Command]) -> tuple[structs.FieldInfo, ...]:
    """Return the fields of a kind of command; msgspec evaluates all annotations each time."""
    return structs.fields(kind)


def _listed(value: Any) -> Any:
    """Return the value with lists for its tuples, which are longer as MessagePack."""
    if isinstance(value, Mapping):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, (tuple, list)) else value


class Follow(Command, frozen=True, tag="follow"):
    """Load the state of checkpoint `epoch` as a standby of the task, which runs in that incarnation."""

    task: str
    epoch: Natural
    files: Files
    incarnation: Natural = 0


class Promote(Command, frozen=True, tag="promote"):
    """Become the task in that incarnation, from the state that `files` restore, which is that of `epoch`.

    Attributes:
        peers: neighbour → (endpoint, incarnation), those that run.
        rollback: the last decision about lost determinants, for `read_rollback`.
    """

    task: str
    incarnation: Natural
    epoch: Natural
    files: Files
    peers: Mapping[str, tuple[str, Natural]]
    rollback: Any = None


class Peer(Command, frozen=True, tag="peer"):
    """A neighbour of the task runs in that incarnation, at that endpoint."""

    task: str
    endpoint: str
    incarnation: Natural


class PeerDown(Command, frozen=True, tag="peer_down"):
    """Reports that an incarnation of a neighbour has ended."""

    task: str
    incarnation: Natural


class Echo(Command, frozen=True, tag="echo"):
    """Echo what the task takes to its hot standby, which is at that endpoint; empty: it has none."""

    endpoint: str


class Checkpoint(Command, frozen=True, tag="checkpoint"):
    """Begin checkpoint `epoch`: a source sends the barrier.

    Attributes:
        final: the job ends with it.
        hold: no record follows the barrier until the checkpoint is complete.
    """

    epoch: Natural
    final: bool = False
    hold: bool = False


class Completed(Command, frozen=True, tag="completed"):
    """Checkpoint `epoch` is complete: what it covers can be forgotten."""

    epoch: Natural


class Inspect(Command, frozen=True, tag="inspect"):
    """Report the state of a key to the client `to`."""

    users: ClassVar[frozenset[str]] = frozenset({"key"})
    to: str
    operator: str
    key: Any


class Inquire(Command, frozen=True, tag="inquire"):
    """Report what the task depends on of the lost extents (task, epoch, bytes)."""

    number: Natural
    lost: Extents


class Keep(Command, frozen=True, tag="keep"):
    """Act on the decision about lost determinants, for `read_rollback`."""

    rollback: Any


class Stop(Command, frozen=True, tag="stop"):
    """End; `finished`: because the job is."""

    finished: bool


class Alive(Command, frozen=True, tag="alive"):
    """The supervisor is alive."""


AnyCommand = (
    Follow | Promote | Peer | PeerDown | Echo | Checkpoint | Completed | Inspect | Inquire | Keep | Stop | Alive
)


class HighestTerm:
    """The highest leadership term that a process knows: messages of a supervisor with a lower one are refused.

    A message without a term is of a job on one machine, whose supervisor has no successor elsewhere.
    """

    def __init__(self, term: int = 0) -> None:
        self.term = term
        self.refused = 0
        """The number of messages refused."""

    def admits(self, message: Any) -> bool:
        """Record the term of a message; returns whether it is to be obeyed.

        Raises:
            PeerViolation: it is no message.
        """
        if not isinstance(message, Mapping):
            raise PeerViolation(f"a message is a map, and no {type(message).__name__}")
        term = message.get(TERM, self.term)
        if type(term) is not int or term < self.term:
            self.refused += 1
            return False
        self.term = term
        return True

    def read_command(self, message: Any) -> AnyCommand | None:
        """Return the command in a message; None where it is refused.

        Raises:
            PeerViolation: it is no message, of an unknown kind, or not what that kind holds.
        """
        return read_command(message) if self.admits(message) else None


def read_command(message: Mapping[str, Any]) -> AnyCommand:
    """Return the command in a message.

    Raises:
        PeerViolation: it is of an unknown kind, or not what that kind holds.
    """
    command: AnyCommand = read_kind(message, AnyCommand, "command")
    return command


def read_kind(message: Mapping[str, Any], kinds: Any, what: str) -> Any:
    """Return a message as the one of these kinds that it names.

    Args:
        what: a message of these kinds is called so.

    Raises:
        PeerViolation: it is of an unknown kind, or not what that kind holds.
    """
    try:
        return convert(dict(message), kinds)
    except ValidationError as problem:
        raise PeerViolation(f"{message.get('kind')!r:.40} is no {what} ({problem})") from None
