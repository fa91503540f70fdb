"""The template of a job's own processes, which `causal run` forks before it loads any of the user's code.

The template loads the modules of the supervisor, the agent and the workers once for all of them. It forks the
supervisor and the agent when `causal run`, which becomes their parent, orders it; each agent receives its own fork
server (`standby.host.forks`). If there is no template, or if it fails, interpreters are started instead.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from causal.errors import PipelineError
from causal.process.ending import run
from causal.process.interpreter import module_command
from causal.storage.modes import PRIVATE
from standby.host import forks
from standby.host.forked import Forked
from standby.host.forkserver import ORDER_BYTES_MAX, READY, Strings, ordered, serve_forker, unbuffered
from standby.host.parentage import PARENT, die_with_parent

SUPERVISOR, AGENT, WORKER = "standby.daemon", "standby.agent", "operators.runtime.worker"

READY_S = 5.0
"""The time after which a new interpreter would be ready."""

ANSWER_S = 60.0
"""The time allowed for a fork: longer than a fork ever takes, because a process forked later would be superfluous."""


class Template:
    """The end of the template's connection that `causal run` uses."""

    def __init__(self, process: Forked, control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._ready = False

    def start(self, argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> Forked | None:
        """Return a new process that is a child of this one; None if an interpreter must be started instead."""
        if argv[len(module_command("")) - 1] not in (SUPERVISOR, AGENT):
            return None  # the template has not loaded this module, and would load it for this process only
        umask = os.umask(PRIVATE)
        os.umask(umask)
        order: dict[str, Any] = {"argv": argv, "slot": "", "log": str(log)}
        order |= {"environment": environment, "directory": os.getcwd(), "umask": umask}
        message = json.dumps(order).encode()
        try:
            if not self._ready:
                self._ready = self._receive(READY_S) == READY
            if not self._ready or len(message) > ORDER_BYTES_MAX:
                return None
            self._control.send(message)
            reply = json.loads(self._receive(ANSWER_S))
        # The template has ended or does not answer, and a process that it may have forked must not be used.
        except (OSError, ValueError):
            self.close()
            self._ready = False
            return None
        return Forked(reply["pid"]) if "pid" in reply else None

    def _receive(self, within_s: float) -> bytes:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        if not poll.poll(within_s * 1000):
            raise TimeoutError
        return self._control.recv(ORDER_BYTES_MAX)

    def close(self) -> None:
        """End the template; forked processes keep running."""
        self._control.close()
        self._process.kill()
        self._process.wait()


def divide() -> Template | int | None:
    """Fork the template from this process, which has reserved space (`standby.host.room`) and loaded no user code.

    Returns: the template; in a forked process that has finished, the exit status of that process; None if a template is
    impossible.
    """
    try:
        strings = Strings()
    except PipelineError:
        return None
    if len(os.listdir("/proc/self/task")) != 1:
        return None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    root = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    pid = os.fork()
    if pid:
        strings.show(sys.orig_argv)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        return Template(Forked(pid), ours)
    ours.close()
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.environ[PARENT] = str(root)
    die_with_parent()
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY)):
        null = os.open(os.devnull, flags)
        os.dup2(null, descriptor)
        os.close(null)
    os.closerange(3, theirs.fileno())
    os.closerange(theirs.fileno() + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return _serve(theirs, strings)


def _serve(control: socket.socket, strings: Strings) -> int:
    strings.show(module_command(__name__))
    gc.disable()  # `ordered` collects once
    for name in (SUPERVISOR, AGENT, WORKER):
        importlib.import_module(name)
    gc.enable()
    order = ordered(control, strings)
    if order is None:
        return 0
    os.environ.clear()
    os.environ.update(order["environment"])
    os.umask(order["umask"])
    with suppress(OSError):  # an interpreter, too, can start in a directory that was removed
        os.chdir(order["directory"])
    unbuffered()
    module = order["argv"][len(module_command("")) - 1]
    if module == AGENT:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            os.setsid()
            return serve_forker(theirs, strings)
        theirs.close()
        forks.inherited.append((Forked(pid), ours))
    run(partial(importlib.import_module(module).main, order["argv"][len(module_command("")) :]))
