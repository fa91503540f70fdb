"""The agent's end of the fork server: workers that cost no interpreter, or None where there is no server.

A server that dies or does not answer in time is replaced, a few times.  Whatever it may have begun for the order that
it has not answered is killed, and the caller starts an interpreter.
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
from standby.forkserver import ORDER_BYTES_MAX, READY, SERVER_SLOT, SLOT_BYTES_MAX
from standby.parentage import PARENT
from standby.processes import SLOT_MARK, kill_marked

READY_S = 5.0
"""How long the first worker of a job may wait for the server; after that an interpreter is not later."""

ANSWER_S = 2.0
"""How long a fork may take."""

KILL_S = 1.0
LOST_MAX = 3
"""Servers lost in a row, none of which forked anything, after which there is no other."""

_log = logging.getLogger("standby.agent")


class ForkServer:
    """The fork server of one agent, if there is one.

    Args:
        module: what workers run; its `main` is called without arguments.
        environment: of each worker, but for the mark of its slot.
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
        """0 when there is none."""
        return self._process.pid if self._process is not None else 0

    def begin(self) -> None:
        """Start a server, if there is none and not too many were lost; it loads while the caller goes on."""
        if self._process is not None or self._lost >= LOST_MAX:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Workers overwrite this command line by their own, so it has to be longer than theirs.
        longest = len(os.fsencode(self._job)) + SLOT_BYTES_MAX + len(self._module)
        argv = module_command("standby.forkserver", str(theirs.fileno()), self._module, "." * longest)
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
        told = self._answer(order) if len(order) <= ORDER_BYTES_MAX else {"error": "the order is too long"}
        if told is None:
            self._lose(slot)
            return None
        if "pid" in told:
            self._lost = 0
            return int(told["pid"])
        _log.warning("%s is started without the fork server: %s", slot, told["error"])
        return None

    def _is_ready(self, within_s: float) -> bool:
        if not self._ready and self._control is not None:
            said = self._receive(self._control, within_s)
            self._ready = said == READY
            if said is not None and not self._ready:
                self._lose("")
        return self._ready

    def _answer(self, order: bytes) -> dict[str, Any] | None:
        if self._control is None:
            return None
        try:
            self._control.send(order)
        except OSError:
            return None
        said = self._receive(self._control, ANSWER_S)
        return json.loads(said) if said else None

    @staticmethod
    def _receive(control: socket.socket, within_s: float) -> bytes | None:
        """A message; b"" if the server is gone, None if there was none in time."""
        poll = select.poll()
        poll.register(control, select.POLLIN)
        if not poll.poll(within_s * 1000):
            return None
        try:
            return control.recv(ORDER_BYTES_MAX)
        except ConnectionResetError:
            return b""

    def _lose(self, slot: str) -> None:
        """Be rid of a server that does not serve, and of what it may have begun for a slot."""
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
        """End it; workers are not concerned."""
        self._drop()
