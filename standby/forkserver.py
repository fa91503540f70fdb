"""The fork server: a process that has loaded what workers need, and forks one at each order of its agent.

    python -m standby.forkserver DESCRIPTOR MODULE PADDING

An order is one message on the socket of that descriptor: {"argv", "slot", "log"}; the answer is {"pid"} or
{"error"}.  The process of that pid is the agent's own child: it was forked by a process that ended at once, and
orphans fall to the agent.  It carries its own command line and marks from its first moment, has a session of its
own, its output in its log, and runs `MODULE.main()`.  What a worker could tell from a fresh interpreter was seen to:
the server runs no thread, opens no context, touches no file of the user's, and is gone when its agent is.
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
from standby.parentage import die_with_parent
from standby.processes import SLOT_MARK

SLOT_BYTES_MAX = 64
SERVER_SLOT = "forkserver".ljust(SLOT_BYTES_MAX, ".")
"""The server's own mark: as long as any slot's, since a worker's own is written over it."""

ORDER_BYTES_MAX = 1 << 16
READY = b"ready"

_STAT_STRINGS = slice(45, 49)
"""Where /proc/PID/stat tells, behind the name, where arguments and environment begin and end."""


class Strings:
    """The command line and the environment that this process was started with, as others see them in /proc."""

    def __init__(self) -> None:
        stat = Path("/proc/self/stat").read_bytes()
        first, last, self._environment, end = map(int, stat[stat.rindex(b")") + 2 :].split()[_STAT_STRINGS])
        self._arguments, self._bytes = first, last - first
        held = b"\0" + ctypes.string_at(self._environment, end - self._environment)
        mark = b"\0" + SLOT_MARK.encode() + b"=" + SERVER_SLOT.encode() + b"\0"
        self._at = held.find(mark)
        if self._at < 0:
            raise PipelineError(f"the fork server has no {SLOT_MARK} in its environment; the agent starts it")

    def replace(self, argv: Sequence[str], slot: str) -> None:
        """Be this from now on.  `PipelineError` for what is longer than what was there."""
        command, mark = b"".join(os.fsencode(part) + b"\0" for part in argv), slot.encode()
        if len(command) > self._bytes or len(mark) > SLOT_BYTES_MAX:
            raise PipelineError(f"the command line of {slot} is too long for the fork server")
        ctypes.memmove(self._arguments, command.ljust(self._bytes, b"\0"), self._bytes)
        at = self._environment + self._at + len(SLOT_MARK) + 1
        ctypes.memmove(at, mark.ljust(SLOT_BYTES_MAX, b"\0"), SLOT_BYTES_MAX)
        os.environ[SLOT_MARK] = slot


def _fork(told: Mapping[str, Any], strings: Strings) -> int:
    """Have a worker forked.  Returns its pid, and 0 in the worker itself; `OSError` where that cannot be."""
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        os.close(read)
        _fork_again(told, strings, write)
        os.close(write)
        return 0
    os.close(write)
    with open(read, "rb") as answer:
        said = answer.read()
    os.waitpid(between, 0)  # from here on the worker is the agent's child
    if not said.isdigit():
        raise OSError(said.decode(errors="replace") or "the process between ended")
    return int(said)


def _fork_again(told: Mapping[str, Any], strings: Strings, write: int) -> None:
    """In the process between: return in its child alone, which has been the worker from its first moment."""
    try:
        strings.replace(told["argv"], told["slot"])
        log = os.open(told["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
    """Obey until the agent closes its end.  Returns in each worker with what it was told to be; None at the end."""
    while order := control.recv(ORDER_BYTES_MAX):
        told: Mapping[str, Any] = json.loads(order)
        try:
            pid = _fork(told, strings)
        except OSError as problem:
            control.send(json.dumps({"error": str(problem)}).encode())
            continue
        if pid == 0:
            return told
        control.send(json.dumps({"pid": pid}).encode())
    return None


def _loaded(name: str) -> Callable[[], int]:
    """The `main` of the module that workers run; `PipelineError` where it could not be shared by fork."""
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
    """Serve; in a worker, be the worker.  0 when the agent has gone."""
    die_with_parent()
    try:
        strings, begin = Strings(), _loaded(argv[1])
    except PipelineError as problem:
        print(f"fork server: {problem}", file=sys.stderr)
        return 2
    control = socket.socket(fileno=int(argv[0]))
    gc.collect()
    gc.freeze()  # what is shared stays shared
    control.send(READY)
    told = serve(control, strings)
    control.close()
    if told is None:
        return 0
    os.setsid()
    sys.argv[:] = sys.orig_argv[:] = told["argv"]
    sys.argv[: len(module_command(argv[1]))] = [sys.modules[argv[1]].__file__ or ""]
    return begin()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
