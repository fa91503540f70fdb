"""A fork server: a process that has loaded the modules of other processes and forks one such process for each order.

    python -m standby.host.forkserver DESCRIPTOR MODULE PADDING

An order is one message on the socket with that descriptor: {"argv", "slot", "log"}; the answer is {"pid"} or {"error"}.
The process with that pid becomes a child of the process that sent the order: an intermediate process forks it and ends
immediately, and the ordering process adopts orphans. From the beginning, the new process has its own command line,
marks and Unix session, writes its output to its log, and runs `MODULE.main()`. It behaves like a new interpreter,
because a server runs no thread, opens no context, uses none of the user's files, and ends with the process it serves.

`causal run` forks such a server, the template, from itself (`standby.host.template`) for the supervisor and the agent.
An agent that is forked from the template has a server for its workers from the beginning. Orders to the template also
contain an environment and a directory.
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
"""The server's own mark.  It is as long as the longest slot mark, because a worker's mark overwrites it."""

ORDER_BYTES_MAX = 1 << 16
READY = b"ready"
ADOPTION_S = 0.0002
"""The interval at which a forked process checks whether the intermediate process has ended."""

_STAT_STRINGS = slice(45, 49)
"""The fields of /proc/PID/stat, counted after the name, that contain the bounds of the arguments and environment."""


class Strings:
    """The command line and the environment of this process, as other processes see them in /proc."""

    def __init__(self) -> None:
        stat = Path("/proc/self/stat").read_bytes()
        first, last, begin, end = map(int, stat[stat.rindex(b")") + 2 :].split()[_STAT_STRINGS])
        self._arguments, self._bytes = first, last - first
        environment = ctypes.string_at(begin, end - begin)
        self._marks: dict[str, tuple[int, int]] = {}
        """Mark → the address of its value, and the number of bytes available there."""
        for name in (JOB_MARK, SLOT_MARK):
            at = (b"\0" + environment).find(b"\0" + name.encode() + b"=")
            if at < 0:
                raise PipelineError(
                    f"the fork server has no {name} in its environment; the process that starts the fork server must "
                    "set this variable"
                )
            at += len(name) + 1
            self._marks[name] = begin + at, environment.index(b"\0", at) - at

    def show(self, argv: Sequence[str], **marks: str) -> None:
        """Replace the command line and the values of these marks.

        Raises:
            PipelineError: a value needs more space than is available.
        """
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
    """Fork a process through an intermediate one; return its pid, or 0 in the new process; `OSError` on failure."""
    read, write = os.pipe()
    try:
        between = os.fork()
    except OSError:  # at the moment, the machine has no room for another process
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
    os.waitpid(between, 0)  # the new process is now a child of the process that sent the order
    if not reply.isdigit():
        raise OSError(os.fsdecode(reply) or "the intermediate process ended")
    return int(reply)


def _fork_again(order: Mapping[str, Any], strings: Strings, write: int) -> None:
    """Fork the ordered process from the intermediate one; return only in the new process, once it has been adopted."""
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
    """Carry out orders until the other end is closed; return the order in each new process, and None in the server.

    The other end is also closed when the ordering process dies, perhaps before it has read an answer.
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
        pass  # the ordering process has ended, and its successor starts its own server
    return None


def load(name: str) -> ModuleType:
    """Import the module that forked processes run, and call its `prepare` with the job if there is such a function."""
    module = importlib.import_module(name)
    prepare: Callable[[Path], None] | None = getattr(module, "prepare", None)
    if prepare is not None:
        prepare(Path(os.environ[JOB_MARK]))
    return module


def _loaded(name: str) -> Callable[[], int]:
    """Load the module that workers run and return its `main`.

    Raises:
        PipelineError: the module cannot be shared by forking.
    """
    try:
        begin: Callable[[], int] | None = getattr(load(name), "main", None)
    except ImportError as problem:
        raise PipelineError(f"{name} cannot be imported: {problem}") from None
    if begin is None:
        raise PipelineError(f"{name} has no main(), so its workers are started one by one")
    if len(os.listdir("/proc/self/task")) != 1:
        raise PipelineError(f"importing {name} starts threads, so its workers are started one by one")
    return begin


def ordered(control: socket.socket, strings: Strings) -> Mapping[str, Any] | None:
    """Carry out orders with all shared objects frozen; return the order in a new process that has been set up for it.

    In the server itself, return None once the other end is closed.
    """
    gc.collect()
    gc.freeze()  # otherwise, garbage collections would write to shared memory pages and so copy them
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
    """Make this process write output to its log immediately, as PYTHONUNBUFFERED does in a new interpreter."""
    for name in ("stdout", "stderr"):
        before = getattr(sys, name)
        before.flush()
        raw = io.FileIO(before.fileno(), "w", closefd=False)
        stream = io.TextIOWrapper(raw, before.encoding, before.errors, write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def serve_workers(control: socket.socket, strings: Strings, module: str) -> int:
    """Run an agent's server or, in a forked process, the worker; return only if the server cannot run."""
    try:
        begin = _loaded(module)
    except PipelineError as problem:
        return _refused(problem)
    if ordered(control, strings) is None:
        end(0)
    run(begin)


def serve_forker(control: socket.socket, strings: Strings) -> int:
    """Run a server in a process that its agent has just forked; the agent's first message describes the server."""
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
    """Run the server or, in a forked process, the worker; return only if the server cannot run."""
    die_with_parent()
    try:
        strings = Strings()
    except PipelineError as problem:
        return _refused(problem)
    return serve_workers(socket.socket(fileno=int(argv[0])), strings, argv[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
