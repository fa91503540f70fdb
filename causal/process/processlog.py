"""The log of one process of a job: everything it prints or logs, line by line, with the time and the task.

A line has the form `2026-11-22T09:41:53.123Z LABEL SOURCE: text`. SOURCE is `print` for printed text, and otherwise a
level and a logger. The file size is limited (`bound`). A line that cannot be written, for example because the disk is
full, is dropped and counted, so logging never ends a process or loses a record. A file that was removed is created
again.
"""

from __future__ import annotations

import atexit
import faulthandler
import fcntl
import io
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

LOG_BYTES_MAX = 16 << 20
"""The maximum size of one file; the previous file is also kept."""
LINE_CHARACTERS_MAX = 16_384
"""The length above which a line is split into several lines."""
STDOUT, STDERR = 1, 2

BEGINS = "begins as incarnation "
"""The beginning of the line that a process logs when it starts to run a task; later lines belong to that task."""

_PREFIX = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (\S+)(?: \(replay\))? ([^:]*): ?")
_time_ns = time.time_ns  # bound before `operators.capture` replaces the clock


class ProcessLog:
    """A writer of lines to the descriptors of standard output and standard error, which refer to one file.

    Args:
        path: the path of that file. If the descriptors refer to another file, the file at `path` is not touched, and
            the size is not limited.
        label: a function that returns the task that the process runs, or the name of the process.
    """

    def __init__(self, path: Path, label: Callable[[], str]) -> None:
        self.dropped = 0
        self._path = path
        self._label = label
        self._lock = threading.Lock()
        shared = os.fstat(STDERR)
        self._bounded = path.exists() and os.path.samestat(shared, path.stat())
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have held the old lock at the time of the fork

    def write(self, source: str, text: str) -> None:
        """Write each line of `text`."""
        seconds, rest_ns = divmod(_time_ns(), 1_000_000_000)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", _gmtime(seconds))
        prefix = f"{stamp}.{rest_ns // 1_000_000:03d}Z {self._label()} {source}: "
        lines = "".join(f"{prefix}{part}\n" for line in text.split("\n") for part in _parts(line))
        data = lines.encode(errors="backslashreplace")
        with self._lock:
            self._put(data)

    def _put(self, data: bytes) -> None:
        try:
            if self._bounded:
                status = os.fstat(STDERR)
                if not status.st_nlink:
                    self._begin_again()
                elif status.st_size + len(data) > LOG_BYTES_MAX:
                    bound(self._path, len(data))
            view = memoryview(data)
            while view:
                view = view[os.write(STDERR, view) :]
        except OSError:
            self.dropped += 1

    def _begin_again(self) -> None:
        """Redirect both descriptors to a new file that replaces one that was removed."""
        descriptor = open_log(self._path)
        for each in (STDOUT, STDERR):
            os.dup2(descriptor, each)
        os.close(descriptor)


def open_log(path: Path) -> int:
    """Open a log for appending, creating the file and its directory if they are missing; return the descriptor.

    Raises:
        OSError: the file cannot be created.
    """
    path.parent.mkdir(exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def bound(path: Path, more: int = 0) -> None:
    """Empty a log that `more` bytes would make too large, and move its content, or the end of it, to `NAME.log.1`.

    Every writer appends, so the limit also applies to user code, its children and C libraries, which have the
    descriptor and write to it directly.

    Raises:
        OSError: the disk is full, or the file was removed.
    """
    with open(path, "r+b") as log:
        if os.fstat(log.fileno()).st_size + more <= LOG_BYTES_MAX:
            return
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # the process or its agent is already moving the content
        size = os.fstat(log.fileno()).st_size
        if size + more <= LOG_BYTES_MAX:
            return
        older = path.with_name(path.name + ".1")
        fresh = older.with_name(older.name + ".new")
        log.seek(max(0, size - LOG_BYTES_MAX))
        try:
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as copy:
                import shutil  # imported here because only a full log needs it

                shutil.copyfileobj(log, copy)
            os.replace(fresh, older)
        except OSError:
            for each in (fresh, older):  # removing both files frees space for the next line
                each.unlink(missing_ok=True)
            raise
        log.truncate(0)


_gmtime = time.gmtime


def _parts(line: str) -> list[str]:
    if len(line) <= LINE_CHARACTERS_MAX:
        return [line]
    return [line[start : start + LINE_CHARACTERS_MAX] for start in range(0, len(line), LINE_CHARACTERS_MAX)]


class _Printed(io.TextIOBase):
    """A replacement for `sys.stdout` and `sys.stderr` that turns text into lines of the process's log."""

    def __init__(self, log: ProcessLog, source: str, descriptor: int) -> None:
        self._log = log
        self._source = source
        self._descriptor = descriptor
        self._begun = threading.local()
        """The beginning of each thread's unfinished line, as the attribute `text`."""
        self.buffer = open(descriptor, "wb", buffering=0, closefd=False)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, text: str, /) -> int:
        whole, newline, rest = (getattr(self._begun, "text", "") + text).rpartition("\n")
        if newline:
            self._log.write(self._source, whole)
        if len(rest) > LINE_CHARACTERS_MAX:
            self._log.write(self._source, rest)
            rest = ""
        self._begun.text = rest
        return len(text)

    def end_line(self) -> None:
        """Write the text that this thread has printed since its last newline."""
        if getattr(self._begun, "text", ""):
            self.write("\n")


class _Logged(logging.Handler):
    def __init__(self, log: ProcessLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception as problem:  # the arguments do not fit the message, which is the user's mistake
            text = f"{record.msg!r} with {record.args!r} cannot be formatted: {type(problem).__name__}: {problem}"
        self._log.write(f"{record.levelname} {record.name}", text)


def begin(path: Path, label: Callable[[], str]) -> ProcessLog:
    """Turn everything that this process prints, or logs at level INFO or above, into lines of its log (`ProcessLog`).

    The stacks of a crash in C code are also written to the log, without a time.
    """
    log = ProcessLog(path, label)
    faulthandler.enable(STDERR)
    logging.raiseExceptions = False
    logging.basicConfig(handlers=[_Logged(log)], format="%(message)s", level=logging.INFO, force=True)
    for name, source, descriptor in (("stdout", "print", STDOUT), ("stderr", "stderr", STDERR)):
        printed = _Printed(log, source, descriptor)
        setattr(sys, name, printed)
        atexit.register(printed.end_line)
    return log


def parsed(line: str) -> tuple[str, str, str]:
    """Return (time, label, text) of a log line, or ("", "", the line) if `ProcessLog` did not write it."""
    match = _PREFIX.match(line)
    return ("", "", line) if match is None else (match[1], match[2], line[match.end() :])
