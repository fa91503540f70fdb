"""The headers of ECHO and ECHOED by name: both use the fields of the one fixed header, for other things than DATA does.

`docs/wire.md` has the attributes of both as a table, by the fields that they are packed into.
"""

from __future__ import annotations

from typing import NamedTuple

from causal.channels import wire
from causal.errors import PeerViolation


class EchoHeader(NamedTuple):
    """The header of an ECHO, which a task sends to its hot standby.

    Attributes:
        channel: an output of the task, which shows whose frame it is.
        incarnation: that of the task.
        echo: the number of the echo; those of an incarnation are numbered from 1.
        number: that of the frame in its echo, from 0.
        frames: the frames of DATA in the body.
        barrier: the last barrier that the task has passed.
        outputs: the digest of where its outputs stood there.
        more: whether frames of the same turn follow; they are performed together.
        body_bytes: the length of the body.
    """

    channel: int
    incarnation: int
    echo: int
    number: int
    frames: int
    barrier: int
    outputs: int
    more: bool
    body_bytes: int

    def pack(self, job: int) -> bytes:
        return wire.Header(
            wire.ECHO, job, self.channel, self.incarnation, session=self.echo, sequence=self.number, count=self.frames,
            position=self.barrier, digest=self.outputs, origin_ns=self.more, plain_bytes=self.body_bytes,
        ).pack()  # fmt: skip


class EchoedHeader(NamedTuple):
    """The header of an ECHOED, which a hot standby answers its task with.

    Attributes:
        incarnation: that of the ECHO that it answers.
        echo: the number of that echo.
        lost: whether something of that echo is missing, so that nothing more of it counts.
        performed: the sum of the elements of all inputs that have been performed, from the beginning of the job.
    """

    incarnation: int
    echo: int
    lost: bool
    performed: int

    def pack(self, job: int) -> bytes:
        return wire.Header(
            wire.ECHOED, job, 0, self.incarnation, session=self.echo, count=self.lost, position=self.performed
        ).pack()


def read_echo(header: wire.Header) -> EchoHeader:
    """Read the header of an ECHO.

    Raises:
        PeerViolation: it is of another kind, or a flag of it is neither set nor clear.
    """
    if header.kind != wire.ECHO or header.origin_ns > 1:
        raise PeerViolation("no header of an echo")
    return EchoHeader(
        header.channel, header.incarnation, header.session, header.sequence, header.count, header.position,
        header.digest, bool(header.origin_ns), header.plain_bytes,
    )  # fmt: skip


def read_echoed(header: wire.Header) -> EchoedHeader:
    """Read the header of an ECHOED.

    Raises:
        PeerViolation: it is of another kind, or a flag of it is neither set nor clear.
    """
    if header.kind != wire.ECHOED or header.count > 1:
        raise PeerViolation("no header of an answer to an echo")
    return EchoedHeader(header.incarnation, header.session, bool(header.count), header.position)


class Start(NamedTuple):
    """The frame of DATA without elements by which an echo says where it starts on one channel.

    Attributes:
        position: that of the first element which is echoed.
        rollback: the last rollback that the task knows; a later one makes the echo worthless.
    """

    channel: int
    position: int
    rollback: int

    def header(self, job: int) -> wire.Header:
        return wire.Header(wire.DATA, job, self.channel, 0, session=self.rollback, count=0, position=self.position)


def read_start(header: wire.Header) -> Start | None:
    """Read a frame in the body of an ECHO as a start; None for one that has elements."""
    return None if header.count else Start(header.channel, header.position, header.session)
