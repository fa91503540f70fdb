"""The commands that the supervisor sends to a worker; each command is a control message of a separate kind.

A command may arrive twice, late, or for a task that the worker no longer has; `operators.runtime.membership` decides
how to handle it in such cases. Fields with their default values are not sent.
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
"""Log extents, each as (task, epoch, number of bytes)."""

FILES_MAX = 10_000

TERM = "term"
"""The key under which every message from the supervisor of a multi-host job states the leadership term."""

SnapshotPath = Annotated[str, Meta(pattern=r"(?s)\Acheckpoints/(?!(.*/)?\.\.(/|\Z))[^\0]+\Z")]
"""A path relative to the job directory, inside its subdirectory `checkpoints`."""

Files = Annotated[tuple[tuple[SnapshotPath, Natural, str], ...], Meta(max_length=FILES_MAX)]
"""The (path, size, hexadecimal digest) of each file needed to restore one task's state, oldest first."""


class Command(Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """A command from the supervisor; `message` returns it in the form in which it is sent.

    Attributes:
        users: the names of the fields whose value comes from a user and is sent unchanged.
    """

    users: ClassVar[frozenset[str]] = frozenset()

    def message(self) -> dict[str, Any]:
        """Return the mapping that `read_command` reads; only fields in `users` may contain tuples."""
        facts = {"kind": self.__struct_config__.tag}
        for each in _fields(type(self)):
            value = getattr(self, each.name)
            if value is not each.default:
                facts[each.name] = value if each.name in self.users else _listed(value)
        return facts


@cache
def _fields(kind: type[Command]) -> tuple[structs.FieldInfo, ...]:
    """Return the fields of a kind of command, cached because msgspec evaluates all annotations on every call."""
    return structs.fields(kind)


def _listed(value: Any) -> Any:
    """Return the value with tuples replaced by lists, because tuples have a longer MessagePack encoding."""
    if isinstance(value, Mapping):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, (tuple, list)) else value


class Follow(Command, frozen=True, tag="follow"):
    """Load the state of checkpoint `epoch` as a standby of the task, which currently runs as `incarnation`.

    Attributes:
        peers: neighbour → (endpoint, incarnation), for the running downstream neighbours, which a hot standby greets in
            advance.
    """

    task: str
    epoch: Natural
    files: Files
    incarnation: Natural = 0
    peers: Mapping[str, tuple[str, Natural]] = {}


class Promote(Command, frozen=True, tag="promote"):
    """Become the task as `incarnation`, starting from the state of checkpoint `epoch`, which `files` restore.

    Attributes:
        peers: neighbour → (endpoint, incarnation), for the neighbours that are running.
        rollback: the last decision about lost determinants, as read by `read_rollback`.
    """

    task: str
    incarnation: Natural
    epoch: Natural
    files: Files
    peers: Mapping[str, tuple[str, Natural]]
    rollback: Any = None


class Peer(Command, frozen=True, tag="peer"):
    """A report of the endpoint and incarnation of a running neighbour."""

    task: str
    endpoint: str
    incarnation: Natural


class PeerDown(Command, frozen=True, tag="peer_down"):
    """A report that an incarnation of a neighbour has ended."""

    task: str
    incarnation: Natural


class Echo(Command, frozen=True, tag="echo"):
    """Echo the task's input to its hot standby at `endpoint`; an empty endpoint means that there is no hot standby."""

    endpoint: str


class Checkpoint(Command, frozen=True, tag="checkpoint"):
    """Begin checkpoint `epoch`, for which a source sends the barrier.

    Attributes:
        final: whether the job ends with this checkpoint.
        hold: whether no record may follow the barrier until the checkpoint is complete.
    """

    epoch: Natural
    final: bool = False
    hold: bool = False


class Completed(Command, frozen=True, tag="completed"):
    """A report that checkpoint `epoch` is complete, so that the data it covers can be dropped."""

    epoch: Natural


class Inspect(Command, frozen=True, tag="inspect"):
    """Report the state of `key` to the client `to`."""

    users: ClassVar[frozenset[str]] = frozenset({"key"})
    to: str
    operator: str
    key: Any


class Inquire(Command, frozen=True, tag="inquire"):
    """Report on which of the `lost` extents (task, epoch, number of bytes) the task depends."""

    number: Natural
    lost: Extents


class Keep(Command, frozen=True, tag="keep"):
    """Act on the decision about lost determinants, as read by `read_rollback`."""

    rollback: Any


class Stop(Command, frozen=True, tag="stop"):
    """End the process; `finished` states whether the job has finished."""

    finished: bool


class Alive(Command, frozen=True, tag="alive"):
    """A report that the supervisor is alive."""


AnyCommand = (
    Follow | Promote | Peer | PeerDown | Echo | Checkpoint | Completed | Inspect | Inquire | Keep | Stop | Alive
)


class HighestTerm:
    """The highest leadership term known to a process; messages from a supervisor with a lower term are refused.

    A message without a term comes from a job on one machine, whose supervisor has no successor elsewhere.
    """

    def __init__(self, term: int = 0) -> None:
        self.term = term
        self.refused = 0
        """The number of messages refused."""

    def admits(self, message: Any) -> bool:
        """Record the term of a message; return whether the message must be obeyed.

        Raises:
            PeerViolation: `message` is not a map.
        """
        if not isinstance(message, Mapping):
            raise PeerViolation(f"a message must be a map, not {type(message).__name__}")
        term = message.get(TERM, self.term)
        if type(term) is not int or term < self.term:
            self.refused += 1
            return False
        self.term = term
        return True

    def read_command(self, message: Any) -> AnyCommand | None:
        """Return the command in a message, or None if the message is refused.

        Raises:
            PeerViolation: `message` is not a map, has an unknown kind, or has fields that are invalid for its kind.
        """
        return read_command(message) if self.admits(message) else None


def read_command(message: Mapping[str, Any]) -> AnyCommand:
    """Return the command in a message.

    Raises:
        PeerViolation: the message has an unknown kind, or fields that are invalid for its kind.
    """
    command: AnyCommand = read_kind(message, AnyCommand, "command")
    return command


def read_kind(message: Mapping[str, Any], kinds: Any, what: str) -> Any:
    """Convert a message to the one of `kinds` that it names.

    Args:
        what: the term that errors use for messages of these kinds.

    Raises:
        PeerViolation: the message has an unknown kind, or fields that are invalid for its kind.
    """
    try:
        return convert(dict(message), kinds)
    except ValidationError as problem:
        raise PeerViolation(f"{message.get('kind')!r:.40} is not a valid {what} ({problem})") from None
