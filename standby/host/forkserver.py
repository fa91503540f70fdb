"""A fork server: a process that has loaded the modules of others, and forks one of these for each order.

    python -m standby.host.forkserver DESCRIPTOR MODULE PADDING

An order is one message on the socket of that descriptor: {"argv", "slot", "log"}; the answer is {"pid"} or {"error"}.
The process of that pid is a child of the process that ordered it: it was forked by a process that ended immediately,
and the ordering process adopts orphans. It has its own command line and marks from its first moment, its own session,
its output in its log, and runs `MODULE.main()`. It does not differ from a new interpreter: a server runs no thread,
opens no context, uses no file of the user's, and ends with the process that it serves.

`causal run` forks such a server from itself (`standby.host.template`) for the supervisor and the agent, and an agent
forked from it has one for its workers from the first moment. Their orders have an environment and a directory.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import io
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from causal.errors import PipelineError
from causal.process.ending import end, run
from causal.process.interpreter import module_command
from causal.process.processlog import open_log
from standby.host.parentage import PARENT, die_with_parent
from standby.host.room import JOB_MARK, SLOT_BYTES_MAX, SLOT_MARK

SERVER_SLOT = "forkserver".ljust(SLOT_BYTES_MAX, ".")
"""The server's own mark, as long as that of any slot, because a worker's mark overwrites it."""

ORDER_BYTES_MAX = 1 << 16
READY = b"ready"
ADOPTION_S = 0.0002
"""The interval at which a forked process looks whether the process between has ended."""

_STAT_STRINGS = slice(45, 49)
"""The fields of /proc/PID/stat, after the name, with the bounds of the arguments and of the environment."""


class Strings:
    """The command line and the environment of this process that other processes see in /proc."""

    def __init__(self) -> None:
        stat = Path("/proc/self/stat").read_bytes()
        first, last, begin, end = map(int, stat[stat.rindex(b")") + 2 :].split()[_STAT_STRINGS])
        self._arguments, self._bytes = first, last - first
        environment = ctypes.string_at(begin, end - begin)
        self._marks: dict[str, tuple[int, int]] = {}
        """Mark → where its value is, and the bytes that it may have."""
        for name in (JOB_MARK, SLOT_MARK):
            at = (b"\0" + environment).find(b"\0" + name.encode() + b"=")
            if at < 0:
                raise PipelineError(f"the fork server has no {name} in its environment; who starts it puts it there")
            at += len(name) + 1
            self._marks[name] = begin + at, environment.index(b"\0", at) - at

    def show(self, argv: Sequence[str], **marks: str) -> None:
        """Replace the command line and the values of these marks; `PipelineError` if there is no room for one."""
        command = b"".join(os.fsencode(part) + b"\0" for part in argv)
        values = {name: os.fsencode(value) for name, value in marks.items()}
        if len(command) > self._bytes or any(len(value) > self._marks[name][1] for name, value in values.items()):
            raise PipelineError(f"the command line of {argv[-1]} is too long for the fork server")
        ctypes.memmove(self._arguments, command.ljust(self._bytes, b"\0"), self._bytes)
        for name, value in values.items():
            at, room = self._marks[name]
            ctypes.memmove(at, value.ljust(room, b"\0"), room)
            os.environ[name] = marks[name]


def _fork(order: Mapping[str, Any], strings: Strings) -> int:
    """Fork a process through one between; returns its pid, or 0 in the new process itself; `OSError` on failure."""
    read, write = os.pipe()
    try:
        between = os.fork()
    except OSError:  # the machine has no room for another process, which may pass
        os.close(read)
        os.close(write)
        raise
    if between == 0:
        os.close(read)
        _fork_again(order, strings, write)
        os.close(write)
        return 0
    os.close(write)
    with open(read, "rb") as answer:
        reply = answer.read()
    os.waitpid(between, 0)  # now the new process is a child of the one that orders
    if not reply.isdigit():
        raise OSError(os.fsdecode(reply) or "the process between ended")
    return int(reply)


def _fork_again(order: Mapping[str, Any], strings: Strings, write: int) -> None:
    """Fork the ordered process, in the process between, and return only in that process, once it is adopted."""
    between = os.getpid()
    try:
        strings.show(order["argv"], **({SLOT_MARK: order["slot"]} if order["slot"] else {}))
        log = open_log(Path(order["log"]))
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        pid = os.fork()
    except (OSError, PipelineError) as problem:
        os.write(write, os.fsencode(str(problem)))
        os._exit(1)
    if pid:
        os.write(write, b"%d" % pid)
        os._exit(0)
    while os.getppid() == between:
        time.sleep(ADOPTION_S)


def serve(control: socket.socket, strings: Strings) -> Mapping[str, Any] | None:
    """Serve orders until the other end is closed; returns in each new process its order, and in the server None.

    A process that dies closes its end as well, perhaps before it has read an answer.
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
        pass  # who ordered has ended, and the next one starts a server of its own
    return None


def load(name: str) -> ModuleType:
    """Import the module of processes that are to be forked, and call its `prepare` with the job, if it has one."""
    module = importlib.import_module(name)
    prepare: Callable[[Path], None] | None = getattr(module, "prepare", None)
    if prepare is not None:
        prepare(Path(os.environ[JOB_MARK]))
    return module


def _loaded(name: str) -> Callable[[], int]:
    """Load the module that workers run and return its `main`; `PipelineError` if it cannot be shared by fork."""
    try:
        begin: Callable[[], int] | None = getattr(load(name), "main", None)
    except ImportError as problem:
        raise PipelineError(f"{name} cannot be imported: {problem}") from None
    if begin is None:
        raise PipelineError(f"{name} has no main(): its workers are started one by one")
    if len(os.listdir("/proc/self/task")) != 1:
        raise PipelineError(f"importing {name} starts threads: its workers are started one by one")
    return begin


def ordered(control: socket.socket, strings: Strings) -> Mapping[str, Any] | None:
    """Serve orders with all that is shared frozen; returns in a new process its order, once that looks like its own.

    In the server itself it returns None, when the other end is closed.
    """
    gc.collect()
    gc.freeze()  # what is shared stays shared
    order = serve(control, strings)
    control.close()
    if order is None:
        return None
    os.setsid()
    argv: list[str] = order["argv"]
    sys.argv[:] = sys.orig_argv[:] = argv
    sys.argv[: len(module_command(""))] = [sys.modules[argv[len(module_command("")) - 1]].__file__ or ""]
    return order


def unbuffered() -> None:
    """Write output of this process to its log immediately, as PYTHONUNBUFFERED does in a new interpreter."""
    for name in ("stdout", "stderr"):
        before = getattr(sys, name)
        before.flush()
        raw = io.FileIO(before.fileno(), "w", closefd=False)
        stream = io.TextIOWrapper(raw, before.encoding, before.errors, write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def serve_workers(control: socket.socket, strings: Strings, module: str) -> int:
    """Run the server of an agent, or in a forked process the worker; returns only if there can be no server."""
    try:
        begin = _loaded(module)
    except PipelineError as problem:
        return _refused(problem)
    if ordered(control, strings) is None:
        end(0)
    run(begin)


def serve_forker(control: socket.socket, strings: Strings) -> int:
    """Run a server in a process that was just forked by its agent, whose first message is what that wants of it."""
    os.environ[PARENT] = str(os.getppid())
    die_with_parent()
    wanted = json.loads(control.recv(ORDER_BYTES_MAX) or b"{}")
    if not wanted:
        return 0
    os.environ.clear()
    os.environ.update(wanted["environment"])
    log = open_log(Path(wanted["log"]))
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    try:
        strings.show(module_command(__name__), **{JOB_MARK: wanted["job"], SLOT_MARK: SERVER_SLOT})
    except PipelineError as problem:
        return _refused(problem)
    return serve_workers(control, strings, wanted["module"])


def _refused(problem: PipelineError) -> int:
    print(f"fork server: {problem}", file=sys.stderr)
    return 2


def main(argv: list[str]) -> int:
    """Run the server, or in a forked process the worker; returns only if there can be no server."""
    die_with_parent()
    try:
        strings = Strings()
    except PipelineError as problem:
        return _refused(problem)
    return serve_workers(socket.socket(fileno=int(argv[0])), strings, argv[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
