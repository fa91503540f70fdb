"""A host's first question to a supervisor: which job it leads, and what the host needs to take part in that job."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import zmq

from causal.errors import PeerViolation, PipelineError, Unavailable
from causal.network.curve import connect_with
from causal.network.roster import SUPERVISOR, KeyPair
from causal.network.seats import Seat
from standby.network.control import MESSAGE_BYTES_MAX, pack, unpack
from standby.network.gate import JOINING, address_of
from standby.supervision import orders

ASK_MS = 1000
"""The time after which the question is sent again."""

PATIENCE_S = 3.0
"""The time after which the user is informed that the supervisor has not answered."""


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a job as its supervisor sends it."""

    run: str
    job: str
    graph: str
    roster: str
    tether_port: int
    tether_secret: str
    member: Mapping[str, Any]
    term: int
    """The leadership term of the supervisor that answered."""
    address: str
    """The address of that supervisor."""
    wall_ahead_s: float
    """The lead of this host's wall clock over the supervisor's; the error is at most half the round trip."""


KEY_HINT = f", which ends the connections: compare the key of [{SUPERVISOR}] in hosts.toml here and there"
"""The hint to append if a supervisor breaks off handshakes, which happens if the supervisor has another key."""


class Inquiry:
    """Asks the supervisor and its successors for the description of their job; only the leader answers.

    Args:
        seats: the places at which the supervisors may be reached.
        name: the name of this host.
        key: the key of this host; None if no keys are used, which is possible only over loopback.
    """

    def __init__(self, seats: Sequence[Seat], name: str, key: KeyPair | None) -> None:
        self._seats = seats
        self._where = " or ".join(seat.endpoint for seat in seats)
        self._name = name
        self._key = key

    def answer(
        self, say: Callable[[str], None], wanted: Callable[[], bool] = lambda: True, term: int = 0
    ) -> Description:
        """Wait for the description, however long that takes, and report once if the supervisor has not answered for
        a while.

        Args:
            term: the lowest term that is accepted; descriptions from earlier terms are ignored.

        Raises:
            PipelineError: the supervisor refuses this host; if there are several supervisors, one refuses it and none
            has answered.
            Unavailable: the description is no longer wanted.
        """
        context: zmq.Context[Any] = zmq.Context()
        questions = [_Question(context, seat, self._name, self._key) for seat in self._seats]
        poller = zmq.Poller()
        for each in questions:
            poller.register(each.client, zmq.POLLIN)
            poller.register(each.monitor, zmq.POLLIN)
        began_s, said = time.monotonic(), False
        try:
            while wanted():
                for each in questions:
                    each.ask()
                ready = dict(poller.poll(ASK_MS))
                answers = [description for each in questions if (description := each.read(ready, self._name))]
                newest = max(answers, key=lambda description: description.term, default=None)
                if newest is not None and newest.term >= term:
                    return newest
                refusals = [each.refusal for each in questions if each.refusal]
                if refusals and (len(questions) == 1 or time.monotonic() - began_s > PATIENCE_S):
                    raise PipelineError(refusals[0])
                if not said and time.monotonic() - began_s > PATIENCE_S:
                    said = True
                    hint = KEY_HINT if any(each.cut_short for each in questions) else ""
                    say(f"{self._name}: waiting for a supervisor at {self._where}{hint}")
            raise Unavailable(f"{self._where}: it is no longer asked")
        finally:
            for each in questions:
                each.close()
            context.term()


class _Question:
    """The connection to one place at which the supervisor may be."""

    def __init__(self, context: zmq.Context[Any], seat: Seat, name: str, key: KeyPair | None) -> None:
        self._seat = seat
        self._keyed = key is not None
        self._asked_ns = 0
        self.cut_short = False
        """Whether a handshake ended without a stated reason, as it does if the supervisor has a different key."""
        self.refusal = ""
        """The reason why the last handshake was refused; this supervisor may be a candidate while another one leads."""
        self.client = context.socket(zmq.DEALER)
        self.client.linger = 0
        for option, value in (
            (zmq.IMMEDIATE, 1),  # a question that waited in a queue would falsify the measured clock difference
            (zmq.MAXMSGSIZE, 2 * MESSAGE_BYTES_MAX),
            (zmq.RECONNECT_IVL, 100),
            (zmq.RECONNECT_IVL_MAX, 1000),
            (zmq.CONNECT_TIMEOUT, ASK_MS),
        ):
            self.client.setsockopt(option, value)
        self.client.setsockopt_string(zmq.IDENTITY, f"{JOINING}{name}/{os.getpid()}-{threading.get_ident()}")
        if key is not None:
            connect_with(self.client, key, seat.public)
        self.monitor = self.client.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        )
        self.monitor.linger = 0
        self.client.connect(seat.endpoint)

    def ask(self) -> None:
        """Send the question if the connection exists."""
        self._asked_ns = time.time_ns()
        with suppress(zmq.Again):
            self.client.send_multipart([b"", pack("describe", protocol=orders.PROTOCOL)], zmq.NOBLOCK)

    def read(self, ready: Mapping[Any, int], name: str) -> Description | None:
        """Return the answer if it has arrived; None otherwise.

        Raises:
            PipelineError: the supervisor refuses this host.
        """
        if self.monitor in ready:
            # This import loads asyncio, which commands do not need before this point.
            from zmq.utils.monitor import recv_monitor_message

            failed = recv_monitor_message(self.monitor)["event"] != zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
            if failed:
                self.refusal = self._refusal(name)
            else:
                self.cut_short = True
        if self.client not in ready:
            return None
        message = unpack(self.client.recv_multipart()[-1])
        if message["kind"] == "refused":
            raise PipelineError(
                f"the supervisor at {self._seat.endpoint} refuses {name}: {message.get('reason')!s:.300}"
            )
        try:
            ahead_s = ((self._asked_ns + time.time_ns()) / 2 - message["wall_ns"]) / 1e9
            own = {"wall_ahead_s": ahead_s, "address": address_of(self._seat.endpoint)[0]}
            return Description(**{name: own[name] if name in own else message[name] for name in Description.__slots__})
        except KeyError as missing:
            raise PeerViolation(f"the supervisor's description lacks {missing}") from None

    def _refusal(self, name: str) -> str:
        if not self._keyed:
            return (
                f"the supervisor at {self._seat.endpoint} accepts only hosts with a key; pass --key NAME.key "
                "(create it with `causal keys new NAME`, and add its table to the supervisor's hosts.toml)"
            )
        return (
            f"the supervisor at {self._seat.endpoint} refuses the key of {name}, or has another key than this host "
            f"expects: the supervisor's hosts.toml must contain the table [{name}] of this host's file, and this "
            f"host's file must contain the supervisor's table [{self._seat.name or SUPERVISOR}]"
        )

    def close(self) -> None:
        self.client.disable_monitor()
        self.monitor.close(0)
        self.client.close(0)
