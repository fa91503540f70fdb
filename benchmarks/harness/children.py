"""Processes that a benchmark starts: they end with it, however it ends, and nothing that they started stays behind.

`started` and `run` are how a benchmark starts one.  `attended` is what `python -m benchmarks` runs in: a signal ends
the benchmark cleanly, and whatever still lives below it then is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any

from standby.host.parentage import adopt_orphans

ROOT = Path(__file__).parents[2]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
END_WITHIN_S = 40.0
"""Time to end after SIGTERM: a job stops its supervisor, its agent and their processes one after another."""
KILLED_WITHIN_S = 10.0
LOOK_S = 0.01
_PARENT_DEATH = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Interrupted(KeyboardInterrupt):
    """A signal has come: everything that was begun is to be ended."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


def descendants(root: int) -> list[int]:
    """Return all living processes below one, parents first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        fields = stat_fields(int(name)) if name.isdigit() else []
        if fields and fields[0] not in ("Z", "X"):
            children.setdefault(int(fields[1]), []).append(int(name))
    below, left = [], list(children.get(root, []))
    while left:
        pid = left.pop(0)
        below.append(pid)
        left += children.get(pid, [])
    return below


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the process's name; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def reap() -> dict[int, int]:
    """Return statuses of the children that have ended, and of orphans that fell to this process."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def end_all() -> int:
    """SIGKILL everything that lives below this process, until nothing does; how many processes that were.

    Raises:
        TimeoutError: the kernel holds one fast.
    """
    killed: dict[int, None] = {}
    deadline_s = time.monotonic() + KILLED_WITHIN_S
    while left := descendants(os.getpid()):
        if time.monotonic() >= deadline_s:
            raise TimeoutError(f"processes {', '.join(map(str, left))} do not end although they were killed")
        for pid in left:
            killed[pid] = None
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        reap()
        time.sleep(LOOK_S)
    reap()
    return len(killed)


@contextmanager
def started(
    command: Sequence[str],
    stdin: int | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    text: bool = False,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    start_new_session: bool = False,
) -> Iterator[subprocess.Popen[Any]]:
    """Yield a process that has ended when the block is left: on its own, or by SIGTERM, or else by SIGKILL."""
    process = opened(
        command, stdin=stdin, stdout=stdout, stderr=stderr, text=text, cwd=cwd, env=env,
        start_new_session=start_new_session,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            end(process)


def opened(command: Sequence[str], **settings: Any) -> subprocess.Popen[Any]:
    """Return a process that gets SIGTERM if this one dies; otherwise the caller ends it (`end`).

    Args:
        settings: as for `subprocess.Popen`.
    """
    parent = os.getpid()

    def die_with_parent() -> None:
        _libc.prctl(_PARENT_DEATH, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)

    return subprocess.Popen(command, preexec_fn=die_with_parent, **settings)


def end(process: subprocess.Popen[Any]) -> None:
    """End a process and read what it still says; if SIGTERM does not do, by SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.communicate(timeout=END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def run(
    command: Sequence[str], limit_s: float | None = None, env: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end: its status and what it said.

    Raises:
        TimeoutExpired: it did not end within `limit_s`, and was ended.
    """
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=env) as process:
        out, said = process.communicate(timeout=limit_s)
    return subprocess.CompletedProcess(command, process.returncode, out, said)


def attended(main: Callable[[], int]) -> int:
    """Run the whole of a program: its status, or 128 and the signal that ended it.

    A second signal changes nothing: what is being ended is given a bounded time.
    """
    adopt_orphans()
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    try:
        return main()
    except Interrupted as problem:
        print(f"benchmarks: {problem}", file=sys.stderr)
        return 128 + problem.number
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        if left := end_all():
            print(f"benchmarks: {left} processes were left, and have been killed", file=sys.stderr)


def _interrupt(number: int, frame: FrameType | None) -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)
