"""`causal logs`: the lines that the processes of a job have printed and logged, in the order of time.

Each process has a file of its own (`causal.shell.processlog`); this command merges them, also while the job runs.
"""

from __future__ import annotations

import argparse
import heapq
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from causal.errors import PipelineError
from causal.shell.processlog import parsed
from deploy.jobdirectory import find_job, running

LOOK_S = 0.2
READ_BYTES_MAX = 1 << 20
SERVERS = ("supervisor", "agent", "forkserver")


@dataclass(slots=True)
class _Tail:
    """One file, read from the offset of the last read.

    Attributes:
        time: the time of the last line that had one; lines without a time, of native code, get it too.
        label: the label of that line.
    """

    path: Path
    offset: int = 0
    inode: int = 0
    rest: bytes = b""
    time: str = ""
    label: str = field(init=False)

    def __post_init__(self) -> None:
        self.label = self.path.name.partition(".log")[0].removeprefix("companion-")

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """Yields (time, label, line) of each complete new line."""
        try:
            with open(self.path, "rb") as file:
                self.inode = os.fstat(file.fileno()).st_ino
                file.seek(self.offset)
                while data := file.read(READ_BYTES_MAX):
                    self.offset += len(data)
                    *whole, self.rest = (self.rest + data).split(b"\n")
                    for line in whole:
                        yield self._placed(line.decode(errors="replace"))
        except FileNotFoundError:
            return

    def _placed(self, line: str) -> tuple[str, str, str]:
        at, label, _ = parsed(line)
        if at:
            self.time, self.label = at, label
        return self.time, self.label, line


def logs(arguments: argparse.Namespace) -> int:
    """Runs the command and returns its exit status.

    Raises:
        PipelineError: there is no such job, or it has no such task.
    """
    job = find_job(arguments.job, arguments.state_dir)
    tails: dict[Path, _Tail] = {}
    known = _known(job)
    if arguments.task is not None and arguments.task not in known:
        raise PipelineError(f"logs {arguments.task}: there is no such task; there are {', '.join(known)}")
    _show(_new(job, tails), arguments.task, arguments.lines)
    while arguments.follow:
        alive = running(job)  # before the files are read, so that the last lines of a job are shown
        _show(_new(job, tails), arguments.task, None)
        if not alive:
            break
        time.sleep(LOOK_S)
    return 0


def _known(job: Path) -> list[str]:
    """The tasks of the job, its companions and its servers."""
    from standby.blueprint import Blueprint

    blueprint = Blueprint.load(job)
    return [*(task.name for task in blueprint.topology.tasks), *(c.name for c in blueprint.companions), *SERVERS]


def _new(job: Path, tails: dict[Path, _Tail]) -> Iterator[tuple[str, str, str]]:
    """The new lines of all files, merged by time; those of one file stay in their order."""
    directory = job / "logs"
    for path in sorted(directory.glob("*.log")):
        tail = tails.get(path)
        if tail is None:
            older = path.with_name(path.name + ".1")
            if older.exists():
                tails[older] = _Tail(older)
            tails[path] = _Tail(path)
        elif tail.inode and _inode(path) not in (tail.inode, 0):  # it was full, and has been replaced
            older = path.with_name(path.name + ".1")
            tails[older] = _Tail(older, tail.offset, rest=tail.rest, time=tail.time)
            tails[path] = _Tail(path)
    return heapq.merge(*(tail.lines() for tail in tails.values()), key=lambda placed: placed[0])


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def _show(placed: Iterable[tuple[str, str, str]], task: str | None, lines_max: int | None) -> None:
    wanted = (line for _, label, line in placed if task is None or label == task)
    for line in wanted if lines_max is None else deque(wanted, maxlen=lines_max):
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
