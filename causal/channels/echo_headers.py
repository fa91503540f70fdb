"""Named fields for the ECHO and ECHOED headers, which reuse the fields of the fixed header with their own meanings.

`docs/wire.md` lists the attributes of both headers with the fields into which they are packed.
"""

from __future__ import annotations

from typing import NamedTuple

from causal.channels import wire
from causal.errors import PeerViolation


class EchoHeader(NamedTuple):
    """The header of an ECHO, which a task sends to its hot standby.

    Attributes:
        channel: an output channel of the task, which identifies the sender of the frame.
        incarnation: the incarnation of the task.
        echo: the number of the echo; the echoes of each incarnation are numbered from 1.
        number: the number of the frame in its echo, from 0.
        frames: the number of DATA frames in the body.
        barrier: the last barrier that the task has passed.
        outputs: one digest computed from the positions and digests of the task's outputs at that barrier.
        more: whether frames of the same turn follow; the frames of a turn are performed together.
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
    """The header of an ECHOED, with which a hot standby answers its task.

    Attributes:
        incarnation: the incarnation named in the ECHO that is answered.
        echo: the number of the echo that is answered.
        lost: whether part of that echo is missing, so that further frames of it are ignored.
        performed: the total number of elements performed on all inputs since the beginning of the job.
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
    """Read an ECHO header.

    Raises:
        PeerViolation: the header is of another kind, or a flag in it is neither 0 nor 1.
    """
    if header.kind != wire.ECHO or header.origin_ns > 1:
        raise PeerViolation("the frame's header is not a valid ECHO header")
    return EchoHeader(
        header.channel, header.incarnation, header.session, header.sequence, header.count, header.position,
        header.digest, bool(header.origin_ns), header.plain_bytes,
    )  # fmt: skip


def read_echoed(header: wire.Header) -> EchoedHeader:
    """Read an ECHOED header.

    Raises:
        PeerViolation: the header is of another kind, or a flag in it is neither 0 nor 1.
    """
    if header.kind != wire.ECHOED or header.count > 1:
        raise PeerViolation("the frame's header is not a valid ECHOED header")
    return EchoedHeader(header.incarnation, header.session, bool(header.count), header.position)


class Start(NamedTuple):
    """A DATA frame without elements, with which an echo announces its start position on one channel.

    Attributes:
        channel: the input channel of the task.
        position: the position of the first echoed element.
        rollback: the number of the last rollback that the task knows; a later rollback invalidates the echo.
    """

    channel: int
    position: int
    rollback: int

    def header(self, job: int) -> wire.Header:
        return wire.Header(wire.DATA, job, self.channel, 0, session=self.rollback, count=0, position=self.position)


def read_start(header: wire.Header) -> Start | None:
    """Read a frame in the body of an ECHO as a start frame; return None if the frame has elements."""
    return None if header.count else Start(header.channel, header.position, header.session)
