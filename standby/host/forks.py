"""The agent's end of the fork server, which forks workers so that no new interpreter must be started for them.

An agent that was itself forked has its first server from the beginning (`standby.host.template`).

A server that dies or does not answer in time is replaced, but only a limited number of times.  Its unanswered order may
already have started a worker; that worker is killed, and the caller starts an interpreter instead.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from causal.process.interpreter import module_command
from causal.process.processlog import open_log
from standby.host.forked import Forked
from standby.host.forkserver import ORDER_BYTES_MAX, READY, SERVER_SLOT
from standby.host.parentage import PARENT
from standby.host.processes import kill_marked
from standby.host.room import JOB_MARK, SLOT_BYTES_MAX, SLOT_MARK

READY_S = 5.0
"""The time that the first worker of a job waits for the server; by then, a new interpreter would be ready."""

ANSWER_S = 2.0
"""The time that a fork may take."""

KILL_S = 1.0
LOST_MAX = 3
"""The number of consecutive servers that were lost without forking a worker, after which no other is started."""

_log = logging.getLogger("standby.agent")


inherited: list[tuple[Forked, socket.socket]] = []
"""The server that this process inherited when it was forked; empty once that server is in use."""


class ForkServer:
    """The fork server of one agent, if there is one.

    Args:
        module: the module that workers run; its `main` is called without arguments.
        environment: the environment of each worker, without the mark of its slot.
        idle_s_max: the time after the last start after which the server ends while workers run, because its memory is a
            large share of that of a small job; 0 for a server that stays.
    """

    def __init__(self, job: Path, module: str, environment: dict[str, str], idle_s_max: float = 0.0) -> None:
        self._job = job
        self._idle_s_max = idle_s_max
        self._used_s = time.monotonic()
        self._over = False
        """Whether the server has ended because it was no longer needed."""
        self._module = module
        self._environment = {**environment, SLOT_MARK: SERVER_SLOT, PARENT: str(os.getpid())}
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._control: socket.socket | None = None
        self._ready = False
        self._lost = 0

    @property
    def pid(self) -> int:
        """The pid of the server; 0 if there is none."""
        return self._process.pid if self._process is not None else 0

    def begin(self) -> None:
        """Start a server without waiting for it to load, unless there is one already or too many were lost."""
        if self._process is not None or self._over or self._lost >= LOST_MAX:
            return
        if inherited and self._use_inherited(*inherited.pop()):
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Forked workers overwrite this command line with their own, so it must be at least as long as theirs.
        longest = len(os.fsencode(self._job)) + SLOT_BYTES_MAX + len(self._module)
        argv = module_command("standby.host.forkserver", str(theirs.fileno()), self._module, "." * longest)
        try:
            with open(open_log(self._job / "logs" / "forkserver.log"), "ab") as log:
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

    def _use_inherited(self, process: Forked, control: socket.socket) -> bool:
        log = self._job / "logs" / "forkserver.log"
        marks = (PARENT, JOB_MARK, SLOT_MARK)
        environment = {name: value for name, value in self._environment.items() if name not in marks}
        wanted = {"job": str(self._job), "module": self._module, "log": str(log), "environment": environment}
        message = json.dumps(wanted).encode()
        try:
            if len(message) <= ORDER_BYTES_MAX:
                control.send(message)
                self._process, self._control = process, control
                return True
        except OSError:
            pass  # the inherited server has ended
        control.close()
        process.kill()
        process.wait()
        return False

    def await_ready(self) -> None:
        """Wait until the server has loaded, but no longer than a new interpreter would take."""
        self._is_ready(READY_S)

    def attend(self, *, workers: bool) -> None:
        """Replace the server if it has ended or was lost; end it if it has been idle for long enough.

        Args:
            workers: whether any worker is running; before the first start, the server is still needed.
        """
        if self._idle_s_max and workers and time.monotonic() - self._used_s >= self._idle_s_max:
            self._over = True
            self._drop()
        if self._process is not None and self._process.poll() is not None:
            self._lose("")
        self.begin()

    def start(self, argv: tuple[str, ...], slot: str, log: Path, *, patient: bool) -> int | None:
        """Return the pid of a new worker, which is a child of this process; None if an interpreter must be started
        instead.

        Args:
            patient: whether to wait if the server is still loading.
        """
        command = module_command(self._module)
        if list(argv[: len(command)]) != command:
            return None
        self._used_s = time.monotonic()
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
        """Receive a message; return b"" if the server has ended, or None if no message arrived in time."""
        poll = select.poll()
        poll.register(control, select.POLLIN)
        if not poll.poll(within_s * 1000):
            return None
        try:
            return control.recv(ORDER_BYTES_MAX)
        except ConnectionResetError:
            return b""

    def _lose(self, slot: str) -> None:
        """End a server that does not answer, as well as any worker that it may have started for `slot`."""
        _log.warning("the fork server is lost; see logs/forkserver.log")
        self._lost += 1
        self._drop()
        # A process that becomes the worker first has the server's mark, and later the slot's mark.
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
        """End the server; workers keep running."""
        self._drop()
