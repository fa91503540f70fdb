"""The orders that the supervisor sends to a host agent; each is a control message of one kind.

An order names a slot, a role or a file, and an action. No order contains a command line, code, or a path outside the
job directory. Any order may arrive twice, or may reach an agent that has already carried it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from causal.commands import Command, Natural, read_kind

PROTOCOL = 12
"""The version of the messages between agents and supervisors.

The version increases by one with each new message kind or key. Agents of the previous version may still join, so that
hosts can be upgraded one by one; for this, new keys have a default, and an agent drops unknown keys. If two versions
cannot work together, for example because of new frames between tasks, the version increases by two instead.
`tests/architecture/protocol.json` lists the messages of each version; a difference makes a test fail.
"""

NEXT_WORKER = "worker:next"
"""The role of a process of the job's next version, which reads the settings in `next/`."""

Slot = Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9_.-]{0,79}\Z")]
"""The name of a process, which becomes part of file names."""


class Order(Command, frozen=True):
    """A command to a host agent."""


class Start(Order, frozen=True, tag="start"):
    """Start a process unless it exists.  `role` is `worker`, `worker:next` for a worker of the job's next version, or
    `companion:<name>` from the job's description.

    Attributes:
        mark: the mark of the description that the agent must have; empty on one machine.  An agent with another one
            ignores the order, which is repeated.
        settings: the settings of the next version, for `worker:next` on another machine.
    """

    slot: Slot
    role: str
    mark: str = ""
    settings: str = ""


class Kill(Order, frozen=True, tag="kill"):
    """Kill a process; the agent then reports its end."""

    slot: str


class Welcome(Order, frozen=True, tag="welcome"):
    """The host belongs to the job, with this incarnation.

    An agent whose processes belong to a lower incarnation kills them before it sends the next beat.
    """

    incarnation: Natural


class Fenced(Order, frozen=True, tag="fenced"):
    """The incarnation in the agent's beats has ended or is unknown; the agent must ask to join again."""


class Heard(Order, frozen=True, tag="heard"):
    """The reply to a beat that was sent at `sent_ns` on the host's clock and received at `at_ns` on the supervisor's.

    Attributes:
        began_ns: when the job began to read, for sources with a limited rate; 0 if it has not begun.
    """

    sent_ns: int
    at_ns: int
    began_ns: int = 0


class Roster(Order, frozen=True, tag="roster"):
    """The roster has changed; this is its new text."""

    text: str


class Version(Order, frozen=True, tag="version"):
    """The job is another version: its settings and its graph, as in the description that a host asks for."""

    job: str
    graph: str


class Refused(Order, frozen=True, tag="refused"):
    """The agent of that session cannot join; it ends and reports the reason."""

    reason: str
    session: str


class Ended(Order, frozen=True, tag="ended"):
    """The job has ended, and so must the agent and all its processes; `again` means that the job may be resumed."""

    again: bool = False


class Crash(Order, frozen=True, tag="crash"):
    """Make the agent die as if by `kill -9`, because a user wants to see the effect.

    An agent that does not permit this ignores the order.  Otherwise, `causal agent` immediately starts the next agent,
    which adopts the processes.
    """

    incarnation: Natural


AnyOrder = Start | Kill | Welcome | Heard | Fenced | Roster | Version | Refused | Ended | Crash


def reason_to_refuse(version: object, own: int) -> str | None:
    """Return why an agent of this protocol version cannot join a supervisor of version `own`; None if it can."""
    spoken = range(max(1, own - 1), own + 1)
    if type(version) is int and version in spoken:
        return None
    what = (
        f"it speaks version {version!r:.20} of the protocol of hosts, the supervisor {' and '.join(map(str, spoken))}"
    )
    if type(version) is int and version > own:
        return f"{what}; upgrade the supervisor first, then hosts one by one"
    return f"{what}; upgrade causal-streams on this host"


def read_order(message: Mapping[str, Any]) -> AnyOrder:
    """Parse the order in a message.

    Raises:
        PeerViolation: the kind is unknown, or the content does not match the kind.
    """
    order: AnyOrder = read_kind(message, AnyOrder, "order")
    return order
