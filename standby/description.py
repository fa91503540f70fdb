"""A host's first question to a supervisor: which job is this, and what does a host need to take part in it?"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import zmq

from causal.errors import PeerViolation, PipelineError, Unavailable
from causal.shell.curve import connect_with
from causal.shell.roster import SUPERVISOR, KeyPair, Roster
from standby.control import MESSAGE_BYTES_MAX, pack, unpack
from standby.gate import JOINING, PROTOCOL

ASK_MS = 1000
"""The time after which the supervisor is asked again."""

PATIENCE_S = 3.0
"""The time after which the user learns that the supervisor does not answer."""


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a job, by its supervisor."""

    run: str
    job: str
    graph: str
    roster: str
    tether_port: int
    tether_secret: str
    member: Mapping[str, Any]


class Inquiry:
    """Asks a supervisor for the description of its job."""

    def __init__(self, endpoint: str, name: str, key: KeyPair | None, roster: Roster) -> None:
        self._endpoint = endpoint
        self._name = name
        self._key = key
        self._roster = roster

    def answer(self, say: Callable[[str], None], wanted: Callable[[], bool] = lambda: True) -> Description:
        """Waits for the description, however long it takes, and says once what it waits for.

        Raises:
            PipelineError: the supervisor refuses this host.
            Unavailable: it is not wanted any more.
        """
        context: zmq.Context[Any] = zmq.Context()
        client = context.socket(zmq.DEALER)
        client.linger = 0
        client.setsockopt(zmq.MAXMSGSIZE, 2 * MESSAGE_BYTES_MAX)
        client.setsockopt(zmq.RECONNECT_IVL, 100)
        client.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        client.setsockopt_string(zmq.IDENTITY, f"{JOINING}{self._name}/{os.getpid()}-{threading.get_ident()}")
        if self._key is not None:
            connect_with(client, self._key, self._roster.members[SUPERVISOR].public)
        monitor = client.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
        monitor.linger = 0
        try:
            client.connect(self._endpoint.replace("localhost", "127.0.0.1"))
            return self._asked(client, monitor, say, wanted)
        finally:
            client.disable_monitor()
            monitor.close(0)
            client.close(0)
            context.term()

    def _asked(
        self, client: zmq.Socket[Any], monitor: zmq.Socket[Any], say: Callable[[str], None], wanted: Callable[[], bool]
    ) -> Description:
        poller = zmq.Poller()
        poller.register(client, zmq.POLLIN)
        poller.register(monitor, zmq.POLLIN)
        began_s, said = time.monotonic(), False
        while wanted():
            try:
                client.send_multipart([b"", pack("describe", protocol=PROTOCOL)], zmq.NOBLOCK)
            except zmq.Again:
                pass  # no connection yet
            ready = dict(poller.poll(ASK_MS))
            if monitor in ready:
                monitor.recv_multipart()
                raise PipelineError(
                    f"the supervisor at {self._endpoint} refuses the key of {self._name}, or has another key itself: "
                    f"its hosts.toml must have the table [{self._name}] of this host's, and this one's its [supervisor]"
                )
            if client in ready:
                return self._read(client.recv_multipart()[-1])
            if not said and time.monotonic() - began_s > PATIENCE_S:
                said = True
                say(f"{self._name}: waiting for a supervisor at {self._endpoint}")
        raise Unavailable(f"{self._endpoint}: not asked any more")

    def _read(self, data: bytes) -> Description:
        message = unpack(data)
        if message["kind"] == "refused":
            raise PipelineError(
                f"the supervisor at {self._endpoint} refuses {self._name}: {message.get('reason')!s:.300}"
            )
        try:
            return Description(**{name: message[name] for name in Description.__slots__})
        except KeyError as missing:
            raise PeerViolation(f"the supervisor's description lacks {missing}") from None
