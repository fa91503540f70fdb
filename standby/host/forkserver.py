"""The fork server: a process that has loaded the modules that workers need, and forks a worker for each order.

    python -m standby.host.forkserver DESCRIPTOR MODULE PADDING

An order is one message on the socket of that descriptor: {"argv", "slot", "log"}; the answer is {"pid"} or
{"error"}.  The process of that pid is the agent's own child: it was forked by a process that ended at once, and
the agent adopts orphans.  It has its own command line and marks from its first moment, its own session, its output
in its log, and runs `MODULE.main()`.  A worker cannot distinguish this from a new interpreter: the server runs no
thread, opens no context, uses no file of the user's, and ends with its agent.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from causal.errors import PipelineError
from causal.shell.interpreter import module_command
from standby.host.parentage import die_with_parent
from standby.host.processes import SLOT_MARK

SLOT_BYTES_MAX = 64
SERVER_SLOT = "forkserver".ljust(SLOT_BYTES_MAX, ".")
"""The server's own mark, as long as that of any slot, because a worker's mark overwrites it."""

ORDER_BYTES_MAX = 1 << 16
READY = b"ready"

_STAT_STRINGS = slice(45, 49)
"""The fields of /proc/PID/stat, behind the name, with the bounds of the arguments and of the environment."""


class Strings:
    """The command line and the environment of this process that other processes see in /proc."""

    def __init__(self) -> None:
        stat = Path("/proc/self/stat").read_bytes()
        first, last, self._environment, end = map(int, stat[stat.rindex(b")") + 2 :].split()[_STAT_STRINGS])
        self._arguments, self._bytes = first, last - first
        environment = b"\0" + ctypes.string_at(self._environment, end - self._environment)
        mark = b"\0" + SLOT_MARK.encode() + b"=" + SERVER_SLOT.encode() + b"\0"
        self._at = environment.find(mark)
        if self._at < 0:
            raise PipelineError(f"the fork server has no {SLOT_MARK} in its environment; the agent starts it")

    def replace(self, argv: Sequence[str], slot: str) -> None:
        """Replaces the command line and the slot's mark; `PipelineError` if one is longer than before."""
        command, mark = b"".join(os.fsencode(part) + b"\0" for part in argv), slot.encode()
        if len(command) > self._bytes or len(mark) > SLOT_BYTES_MAX:
            raise PipelineError(f"the command line of {slot} is too long for the fork server")
        ctypes.memmove(self._arguments, command.ljust(self._bytes, b"\0"), self._bytes)
        at = self._environment + self._at + len(SLOT_MARK) + 1
        ctypes.memmove(at, mark.ljust(SLOT_BYTES_MAX, b"\0"), SLOT_BYTES_MAX)
        os.environ[SLOT_MARK] = slot


def _fork(order: Mapping[str, Any], strings: Strings) -> int:
    """Forks a worker through a process between; returns its pid, or 0 in the worker itself; `OSError` on failure."""
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        os.close(read)
        _fork_again(order, strings, write)
        os.close(write)
        return 0
    os.close(write)
    with open(read, "rb") as answer:
        reply = answer.read()
    os.waitpid(between, 0)  # now the worker is the agent's child
    if not reply.isdigit():
        raise OSError(reply.decode(errors="replace") or "the process between ended")
    return int(reply)


def _fork_again(order: Mapping[str, Any], strings: Strings, write: int) -> None:
    """Forks the worker, in the process between, and returns only in that worker."""
    try:
        strings.replace(order["argv"], order["slot"])
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        pid = os.fork()
    except (OSError, PipelineError) as problem:
        os.write(write, str(problem).encode())
        os._exit(1)
    if pid:
        os.write(write, b"%d" % pid)
        os._exit(0)


def serve(control: socket.socket, strings: Strings) -> Mapping[str, Any] | None:
    """Serves orders until the agent has closed its end; returns in each worker its order, and in the server None.

    An agent that dies closes its end as well, perhaps before it has read an answer.
    """
    try:
        control.send(READY)
        while message := control.recv(ORDER_BYTES_MAX):
            order: Mapping[str, Any] = json.loads(message)
            try:
                pid = _fork(order, strings)
            except OSError as problem:
                control.send(json.dumps({"error": str(problem)}).encode())
                continue
            if pid == 0:
                return order
            control.send(json.dumps({"pid": pid}).encode())
    except (ConnectionResetError, BrokenPipeError):
        pass  # the agent has ended, and the next one starts a server of its own
    return None


def _loaded(name: str) -> Callable[[], int]:
    """Loads the module that workers run and returns its `main`; `PipelineError` if it cannot be shared by fork."""
    try:
        begin: Callable[[], int] | None = getattr(importlib.import_module(name), "main", None)
    except ImportError as problem:
        raise PipelineError(f"{name} cannot be imported: {problem}") from None
    if begin is None:
        raise PipelineError(f"{name} has no main(): its workers are started one by one")
    if len(os.listdir("/proc/self/task")) != 1:
        raise PipelineError(f"importing {name} starts threads: its workers are started one by one")
    return begin


def main(argv: list[str]) -> int:
    """Runs the server, or in a forked process the worker; returns 0 when the agent has ended."""
    die_with_parent()
    try:
        strings, begin = Strings(), _loaded(argv[1])
    except PipelineError as problem:
        print(f"fork server: {problem}", file=sys.stderr)
        return 2
    control = socket.socket(fileno=int(argv[0]))
    gc.collect()
    gc.freeze()  # what is shared stays shared
    order = serve(control, strings)
    control.close()
    if order is None:
        return 0
    os.setsid()
    sys.argv[:] = sys.orig_argv[:] = order["argv"]
    sys.argv[: len(module_command(argv[1]))] = [sys.modules[argv[1]].__file__ or ""]
    return begin()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
