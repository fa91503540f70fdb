"""The agent's end of the fork server, which forks workers so that they need not start an interpreter.

A server that dies or does not answer in time is replaced, a few times.  A worker that it may have begun for the order
that it has not answered is killed, and the caller starts an interpreter.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import subprocess
from pathlib import Path
from typing import Any

from causal.shell.interpreter import module_command
from standby.host.forkserver import ORDER_BYTES_MAX, READY, SERVER_SLOT, SLOT_BYTES_MAX
from standby.host.parentage import PARENT
from standby.host.processes import SLOT_MARK, kill_marked

READY_S = 5.0
"""The time that the first worker of a job waits for the server; a new interpreter would be ready by then."""

ANSWER_S = 2.0
"""The time that a fork may take."""

KILL_S = 1.0
LOST_MAX = 3
"""The number of servers lost in a row, none of which forked a worker, after which no other is started."""

_log = logging.getLogger("standby.agent")


class ForkServer:
    """The fork server of one agent, if there is one.

    Args:
        module: the module that workers run; its `main` is called without arguments.
        environment: the environment of each worker, without the mark of its slot.
    """

    def __init__(self, job: Path, module: str, environment: dict[str, str]) -> None:
        self._job = job
        self._module = module
        self._environment = {**environment, SLOT_MARK: SERVER_SLOT, PARENT: str(os.getpid())}
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._ready = False
        self._lost = 0

    @property
    def pid(self) -> int:
        """The pid of the server; 0 when there is none."""
        return self._process.pid if self._process is not None else 0

    def begin(self) -> None:
        """Starts a server, if there is none and not too many were lost, without waiting until it has loaded."""
        if self._process is not None or self._lost >= LOST_MAX:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Workers overwrite this command line by their own, so it has to be longer than theirs.
        longest = len(os.fsencode(self._job)) + SLOT_BYTES_MAX + len(self._module)
        argv = module_command("standby.host.forkserver", str(theirs.fileno()), self._module, "." * longest)
        try:
            with open(self._job / "logs" / "forkserver.log", "ab") as log:
                self._process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                    start_new_session=True, env=self._environment, pass_fds=(theirs.fileno(),),
                )  # fmt: skip
        except OSError as problem:
            _log.warning("no fork server: %s", problem.strerror)
            self._lost += 1
            ours.close()
        else:
            self._control = ours
        finally:
            theirs.close()

    def await_ready(self) -> None:
        """Waits until the server has loaded, for as long as a new interpreter would need."""
        self._is_ready(READY_S)

    def attend(self) -> None:
        """Replace a server that has ended or was lost."""
        if self._process is not None and self._process.poll() is not None:
            self._lose("")
        self.begin()

    def start(self, argv: tuple[str, ...], slot: str, log: Path, *, patient: bool) -> int | None:
        """The pid of a new worker, a child of this process; None if an interpreter must be started instead.

        Args:
            patient: wait for a server that is still loading.
        """
        command = module_command(self._module)
        if list(argv[: len(command)]) != command:
            return None
        self.begin()
        if not self._is_ready(READY_S if patient else 0.0):
            return None
        order = json.dumps({"argv": argv, "slot": slot, "log": str(log)}).encode()
        reply = self._answer(order) if len(order) <= ORDER_BYTES_MAX else {"error": "the order is too long"}
        if reply is None:
            self._lose(slot)
            return None
        if "pid" in reply:
            self._lost = 0
            return int(reply["pid"])
        _log.warning("%s is started without the fork server: %s", slot, reply["error"])
        return None

    def _is_ready(self, within_s: float) -> bool:
        if not self._ready and self._control is not None:
            message = self._receive(self._control, within_s)
            self._ready = message == READY
            if message is not None and not self._ready:
                self._lose("")
        return self._ready

    def _answer(self, order: bytes) -> dict[str, Any] | None:
        if self._control is None:
            return None
        try:
            self._control.send(order)
        except OSError:
            return None
        reply = self._receive(self._control, ANSWER_S)
        return json.loads(reply) if reply else None

    @staticmethod
    def _receive(control: socket.socket, within_s: float) -> bytes | None:
        """A message; b"" if the server has ended, None if there was none in time."""
        poll = select.poll()
        poll.register(control, select.POLLIN)
        if not poll.poll(within_s * 1000):
            return None
        try:
            return control.recv(ORDER_BYTES_MAX)
        except ConnectionResetError:
            return b""

    def _lose(self, slot: str) -> None:
        """Ends a server that does not answer, and the worker that it may have begun for a slot."""
        _log.warning("the fork server is lost; see logs/forkserver.log")
        self._lost += 1
        self._drop()
        # A process that is to become the worker has the server's mark first, and the slot's mark after.
        for mark in (SERVER_SLOT, slot):
            if mark:
                kill_marked(self._job, KILL_S, only=mark)

    def _drop(self) -> None:
        self._ready = False
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Ends the server; workers keep running."""
        self._drop()
