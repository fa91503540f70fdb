"""A worker's pulse: messages from a thread that runs while the main loop is busy, so that silence indicates death.

The thread creates, uses and closes its own socket, because a ZeroMQ socket belongs to one thread. The heartbeats of the
main loop carry everything that a supervisor needs. A pulse only shows that the process lives, and its current work. No
pulse is sent while the process is stopped or C code holds the interpreter lock. The time limit on silence detects these
cases.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import zmq

from causal.records.values import encode
from causal.task.activity import PULSE_SUFFIX

LOOK_NS_MAX = 400_000_000
LOOKS_PER_LIMIT = 8
LINGER_MS = 500

Message = tuple[str, dict[str, Any]]
"""A control message: (kind, keys)."""


def look_ns(heartbeat_timeout_ms: int) -> int:
    """Return the interval between the thread's checks, several of which fit into the silence that indicates death."""
    return min(LOOK_NS_MAX, heartbeat_timeout_ms * 1_000_000 // LOOKS_PER_LIMIT)


class Pulse:
    """The thread that sends pulses.

    Args:
        endpoint: the endpoint of the supervisor.
        every_ns: the time between two calls of `look`.
        look: a function that is called on this thread and returns the message that is due now, or None. After a message
            of kind "failed", the process ends immediately with status 1, because the thread of the main loop cannot be
            stopped in any other way.
    """

    def __init__(
        self, context: zmq.Context[Any], endpoint: str, slot: str, every_ns: int, look: Callable[[], Message | None]
    ) -> None:
        self._context = context
        self._endpoint = endpoint
        self._slot = slot
        self._every_s = every_ns / 1e9
        self._look = look
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        socket = self._context.socket(zmq.DEALER)
        try:
            socket.linger = 0
            socket.setsockopt(zmq.IDENTITY, (self._slot + PULSE_SUFFIX).encode())
            socket.setsockopt(zmq.SNDHWM, LOOKS_PER_LIMIT)  # a longer queue would only retain outdated messages
            socket.setsockopt(zmq.RECONNECT_IVL, 20)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
            socket.connect(self._endpoint)
            while not self._closed.wait(self._every_s):
                due = self._look()
                if due is not None:
                    self._send(socket, due)
        finally:
            socket.close()

    def _send(self, socket: zmq.Socket[bytes], message: Message) -> None:
        kind, facts = message
        try:
            socket.send(encode({"kind": kind, "slot": self._slot, **facts}), zmq.NOBLOCK)
        except zmq.Again:
            pass  # the supervisor is unavailable; the next pulse repeats the message
        if kind == "failed":
            socket.close(LINGER_MS)
            time.sleep(LINGER_MS / 1000)
            os._exit(1)

    def close(self) -> None:
        """End the thread and close its socket."""
        self._closed.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
