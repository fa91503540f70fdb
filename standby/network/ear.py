"""A candidate's ear, which listens where agents would join and counts messages from hosts without answering them.

Agents send their messages to every supervisor. The candidate hears exactly those messages that it would hear as the
leader, because it uses a leader's socket, keys and roster.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any

import zmq

from causal.config import JobConfig
from causal.errors import PipelineError
from causal.network.roster import load_key
from standby.leadership.hearing import Hearing
from standby.network.gate import Gate, rosters_of

LOOK_MS = 200
"""The interval at which the ear counts messages and checks whether the roster has changed."""

AGAIN_S = 2.0
"""The pause after a failed attempt to bind the address."""

RECEIVE_MAX = 1000

_log = logging.getLogger("standby.election")


class Ear(threading.Thread):
    """A listener that runs on a separate thread until `close`.

    Args:
        config: the settings of this machine: the address, the key and the roster.
        job: the candidate's job directory.

    Attributes:
        hears: whether the candidate hears hosts.
    """

    def __init__(self, config: JobConfig, job: Path) -> None:
        super().__init__(name="ear", daemon=True)
        self.hears = False
        self._config = config
        self._job = job
        self._wake, self._waker = socket.socketpair()

    def run(self) -> None:
        """Listen; while the address or the keys do not permit it, retry."""
        problem = ""
        while True:
            try:
                if self._listened():
                    return
            except PipelineError as refusal:
                if str(refusal) != problem:
                    problem = str(refusal)
                    _log.warning("this candidate hears no host: %s", problem)
            self.hears = False
            if self._ended(AGAIN_S):
                return

    def _listened(self) -> bool:
        """Listen until `close` is called; return whether it has been called."""
        context: zmq.Context[Any] = zmq.Context()
        try:
            key = load_key(Path(self._config.key)) if self._config.key else None
            gate = Gate(context, self._config.listen, key, rosters_of(self._config, self._job), None, 0)
            try:
                return self._counted(gate)
            finally:
                gate.close()
        finally:
            context.destroy(0)

    def _counted(self, gate: Gate) -> bool:
        hearing, poller = Hearing(leads=False), zmq.Poller()
        for each in (self._wake, *gate.sockets()):
            poller.register(each, zmq.POLLIN)
        look_s = 0.0
        while True:
            ready = dict(poller.poll(LOOK_MS))
            if self._wake.fileno() in ready or self._wake in ready:
                return True
            gate.authenticator.serve()
            list(gate.tethers.closed())
            for _ in gate.receive(RECEIVE_MAX):
                continue
            if time.monotonic() >= look_s:
                look_s = time.monotonic() + LOOK_MS / 1000
                gate.revoked()
                hearing.look(gate.heard, time.monotonic_ns())
                self.hears = hearing.hears

    def _ended(self, within_s: float) -> bool:
        return bool(zmq.select([self._wake], [], [], within_s)[0])

    def close(self) -> None:
        """Stop listening; when this method returns, the address is free."""
        self._waker.send(b"\0")
        if self.is_alive():
            self.join()
        self._wake.close()
        self._waker.close()
