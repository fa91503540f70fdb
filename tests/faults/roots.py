"""`causal run`, `causal agent` and others of jobs under test, forked from one process that has loaded their modules.

    python -P -m tests.faults.roots DESCRIPTOR [LIBRARY...]

A new interpreter would cost more CPU than most of these jobs.  What is forked has room (`standby.host.room`), so its
supervisor, its agent and its workers come from its own template, as those of every job.  `tests/faults/test_service.py`
and `test_interrupted.py` start `causal run` as its user starts it, `tests/hosts/test_operations.py` all on hosts.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NoReturn

from operators.sources import generated
from standby.host.parentage import PARENT, die_with_parent
from standby.host.processes import open_process, send_signal, start_time
from standby.host.room import make_room
from standby.host.template import AGENT, SUPERVISOR, WORKER

ARROW = ("pyarrow.parquet", "pyarrow.compute", "pandas")
"""The modules of Arrow, and pandas, which the first table of a process imports in a quarter of a second."""

LIBRARIES = {
    "Parquet": ARROW,
    "pyarrow": ARROW,
    "vectors": ARROW,
    "Postgres": ("psycopg",),
    "Redis": ("redis",),
}
"""Libraries that each process of a job imports, a quarter of its CPU, by what the file of its pipeline has in its text.

Other jobs do without: each worker looks through all modules that were loaded before it (`hidden_nondeterminism`), and
the memory of everything it has looked at is copied.
"""

CLONE_NEWTIME, CLONE_NEWNET, PR_SET_PDEATHSIG = 0x80, 0x40000000, 1
NAMESPACES = Path("/run/netns")
"""The place where `ip` keeps the network namespaces that it has made."""


ORDER_BYTES_MAX = 1 << 17
FORK_S = 120.0

SMOOTH_RPS, STEP_NS = 100, 25_000_000
"""The pace of generated sources: those of more records per second emit due elements in steps, because a batch for each
record, in each task, costs most of the CPU of a job that waits for its records."""


@dataclass(frozen=True)
class Place:
    """A host that is a network namespace, and how far its monotonic clock is ahead."""

    namespace: str
    clock_s: int


class Forked:
    """A `causal` that was forked, with as much of `subprocess.Popen` as is needed here."""

    def __init__(self, pid: int, ended: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        started = start_time(pid)
        self._pidfd = open_process(pid, started) if started is not None else None
        self._ended = ended

    def poll(self) -> int | None:
        """Return the exit status; None while it runs."""
        return self._status(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, once it has ended."""
        status = self._status(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("causal", timeout)
        return status

    def _status(self, within_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], within_s)[0]:
            self.returncode = int(os.read(self._ended, 16) or b"-9")
            os.close(self._ended)
            if self._pidfd is not None:
                os.close(self._pidfd)
                self._pidfd = None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send the signal, if it has not ended."""
        if self.poll() is None and self._pidfd is not None:
            send_signal(self._pidfd, number)

    def kill(self) -> None:
        """Send SIGKILL, if it has not ended."""
        self.send_signal(signal.SIGKILL)


class Root(Forked):
    """A `causal run` that was forked, and what it prints."""

    def __init__(self, pid: int, ended: int, stdout: int, stderr: int) -> None:
        super().__init__(pid, ended)
        self.stdout: IO[str] = open(stdout, errors="replace")
        self.stderr: IO[str] = open(stderr, errors="replace")
        self._output: tuple[str, str] | None = None

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Return the output on both streams, once it has ended."""
        if self._output is not None:
            return "", ""
        deadline_s, parts = time.monotonic() + timeout, {self.stdout: "", self.stderr: ""}
        left = list(parts)
        while left:
            ready = select.select(left, [], [], max(0.0, deadline_s - time.monotonic()))[0]
            if not ready:
                raise subprocess.TimeoutExpired("causal run", timeout)
            for stream in ready:
                text = os.read(stream.fileno(), 1 << 16)
                parts[stream] += text.decode(errors="replace")
                if not text:
                    left.remove(stream)
        if self._status(max(0.0, deadline_s - time.monotonic())) is None:
            raise subprocess.TimeoutExpired("causal run", timeout)
        self._output = parts[self.stdout], parts[self.stderr]
        self.stdout.close()
        self.stderr.close()
        return self._output


def libraries_of(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the libraries that the pipeline of a `causal run` imports."""
    if arguments[:1] != ["run"]:
        return ()
    path = Path(arguments[1])
    text = path.read_text() if path.suffix == ".py" and path.is_file() else ""
    return tuple(dict.fromkeys(name for sign, names in LIBRARIES.items() if sign in text for name in names))


class Roots:
    """The processes that fork, one for each set of libraries, started when they are first needed; they end with this.

    A library may start threads, so it must not be loaded by `causal run` itself, which could not be forked any more.
    """

    def __init__(self) -> None:
        self._servers: dict[tuple[str, ...], tuple[subprocess.Popen[bytes], socket.socket]] = {}

    def start(self, arguments: Sequence[str], directory: Path, environment: Mapping[str, str]) -> Root:
        """Begin `causal` with these arguments, without input."""
        (stdout, write_stdout), (stderr, write_stderr) = os.pipe(), os.pipe()
        try:
            streams = write_stdout, write_stderr
            pid, ended = self._fork(libraries_of(arguments), arguments, directory, environment, streams, None)
        finally:
            os.close(write_stdout)
            os.close(write_stderr)
        return Root(pid, ended, stdout, stderr)

    def start_on(
        self,
        place: Place | None,
        arguments: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        stdout: IO[Any],
        stderr: IO[Any],
    ) -> Forked:
        """Begin `causal`, on a host below a process that ends with it as `unshare --kill-child` does."""
        streams = stdout.fileno(), stderr.fileno()
        return Forked(*self._fork((), arguments, directory, environment, streams, place))

    def _fork(
        self,
        libraries: tuple[str, ...],
        arguments: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        streams: tuple[int, int],
        place: Place | None,
    ) -> tuple[int, int]:
        """Return the pid, and a descriptor that gives the exit status."""
        process, control = self._servers.get(libraries) or self._begin(libraries, environment)
        if process.poll() is not None:
            process, control = self._begin(libraries, environment)
        mask = os.umask(0o077)
        os.umask(mask)
        order = {
            "arguments": list(arguments),
            "directory": str(directory),
            "environment": dict(environment),
            "mask": mask,
            "place": None if place is None else [place.namespace, place.clock_s],
        }
        ended, write_ended = os.pipe()
        writing = array.array("i", [write_ended, *streams])
        control.sendmsg([json.dumps(order).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, writing)])
        os.close(write_ended)
        assert select.select([control], [], [], FORK_S)[0], "no `causal` was forked"
        return int(control.recv(64)), ended

    def _begin(
        self, libraries: tuple[str, ...], environment: Mapping[str, str]
    ) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.faults.roots", str(theirs.fileno()), *libraries],
            stdin=subprocess.DEVNULL,
            env={**environment, PARENT: str(os.getpid())},
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        self._servers[libraries] = process, ours
        return process, ours


ROOTS = Roots()


def _serve(control: socket.socket) -> list[str] | None:
    """Serve until the test run ends; returns the arguments in each process that was forked."""
    wake, waker = socket.socketpair()
    for end in (wake, waker):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(waker.fileno())
    endings: dict[int, int] = {}
    while True:
        ready = select.select([control, wake], [], [])[0]
        if wake in ready:
            wake.recv(4096)
            _report(endings)
        if control not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, ORDER_BYTES_MAX, 3)
        if not message:
            return None
        ended, *streams = descriptors
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, stream in enumerate(streams, start=1):
                os.dup2(stream, number)
            for each in (*descriptors, *endings.values(), control.detach(), wake.detach(), waker.detach()):
                os.close(each)
            return _become(json.loads(message))
        for stream in streams:
            os.close(stream)
        endings[pid] = ended
        control.send(b"%d" % pid)


def _report(endings: dict[int, int]) -> None:
    while endings:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        ended = endings.pop(pid)
        try:
            os.write(ended, b"%d" % os.waitstatus_to_exitcode(status))
        except BrokenPipeError:
            pass  # no test waits for it
        os.close(ended)


def _enter(place: Place) -> None:
    """Enter a host; returns in a child, which dies with this process, and whose status is that of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    namespace = os.open(NAMESPACES / place.namespace, os.O_RDONLY)
    for result in (libc.setns(namespace, CLONE_NEWNET), libc.unshare(CLONE_NEWTIME)):
        if result:
            raise OSError(ctypes.get_errno(), f"host {place.namespace} cannot be entered")
    os.close(namespace)
    Path("/proc/self/timens_offsets").write_text(f"monotonic {place.clock_s} 0\n")  # of its children
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    above, pid = os.getpid(), os.fork()
    if pid:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os._exit(status if status >= 0 else 128 - status)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != above:
        os._exit(128 + signal.SIGKILL)


def _become(order: Mapping[str, Any]) -> list[str]:
    os.setsid()
    if order["place"] is not None:
        _enter(Place(*order["place"]))
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(str(order["directory"]))
    os.umask(order["mask"])
    time.tzset()
    for name in ("stdout", "stderr"):
        number = getattr(sys, name).fileno()
        setattr(sys, name, open(number, "w", closefd=False, errors=getattr(sys, name).errors))
    arguments: list[str] = order["arguments"]
    return arguments


def _end(status: int) -> NoReturn:
    """End this process as its interpreter would, but without a look at each module and object, which are many.

    Those of `test_service.py`, `test_interrupted.py` and jobs with `--verify-replay` end by themselves.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def main() -> int:
    """Fork for one test run; in each forked process, runs the command."""
    die_with_parent()
    assert make_room()
    control = socket.socket(fileno=int(sys.argv[1]))
    for module in ("deploy.cli", SUPERVISOR, AGENT, WORKER, "obstore", *sys.argv[2:]):
        if find_spec(module.partition(".")[0]) is not None:
            importlib.import_module(module)
    generated.SMOOTH_RPS, generated.STEP_NS, generated.STEP_NS_MAX = SMOOTH_RPS, STEP_NS, STEP_NS
    gc.collect()
    gc.freeze()  # no process that is forked collects what this one has loaded
    arguments = _serve(control)
    if arguments is None:
        return 0
    from deploy import entry as command

    sys.argv[:] = [command.__file__, *arguments]
    sys.orig_argv[:] = [sys.executable, "-P", "-m", "deploy", *arguments]
    _end(command.main(room=arguments[:1] in command.RUNNING))


if __name__ == "__main__":
    sys.exit(main())
