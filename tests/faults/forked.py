"""Commands that look at a job, and programs: each in a process forked from the test, which has loaded `causal` already.

A new interpreter would spend half a second of a processor on that for each.  Whole jobs are forked from a process of
their own (`tests.faults.roots`).
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import NoReturn

from deploy import cli

LOOKING = ("logs", "plan", "savepoint", "state", "status")
LOOK_S = 0.005
CRASHED = 70
"""The exit status of a fork that did not even come to its command."""


def forked(directory: Path, arguments: tuple[str, ...], environment: Mapping[str, str], within_s: float) -> Ended:
    """Run one command in that directory to its end; as `subprocess.run` with text and without input."""
    assert arguments[0] in LOOKING
    return forked_call(lambda: cli.main(arguments), directory, arguments, environment, within_s)


def forked_call(
    act: Callable[[], object],
    directory: Path,
    arguments: tuple[str, ...],
    environment: Mapping[str, str],
    within_s: float,
) -> Ended:
    """Call it in that directory, in a process of its own, whose status is the result; `arguments` name it."""
    process = Call(act, directory, environment)
    try:
        out, err = process.communicate(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate(within_s)
        raise subprocess.TimeoutExpired(list(arguments), within_s) from None
    return subprocess.CompletedProcess(arguments, process.status, out, err)


Ended = subprocess.CompletedProcess[str]


class Call:
    """A call in a process forked from this one, with as much of `subprocess.Popen` as is needed here."""

    def __init__(self, act: Callable[[], object], directory: Path, environment: Mapping[str, str]) -> None:
        self._output: tuple[str, str] | None = None
        self._status: int | None = None
        self._streams = TemporaryFile("w+"), TemporaryFile("w+")
        self.pid = os.fork()
        if self.pid == 0:
            be(act, directory, environment, *(stream.fileno() for stream in self._streams))

    @property
    def status(self) -> int:
        """The exit status of a call that has ended."""
        assert self._status is not None, "it has not ended"
        return self._status

    def poll(self) -> int | None:
        """Return the exit status; None while it runs."""
        if self._status is None:
            ended, how = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(how) if ended else None
        return self._status

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Return the output on both streams, once it has ended."""
        deadline_s = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline_s:
                raise subprocess.TimeoutExpired("a forked call", timeout)
            time.sleep(LOOK_S)
        if self._output is None:
            out, err = self._streams
            for stream in self._streams:
                stream.seek(0)
            self._output = out.read(), err.read()
            for stream in self._streams:
                stream.close()
        return self._output

    def send_signal(self, number: int) -> None:
        """Send the signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, if it has not ended."""
        self.send_signal(signal.SIGKILL)


def be(act: Callable[[], object], directory: Path, environment: Mapping[str, str], out: int, err: int) -> NoReturn:
    """Becomes that call in a child that was forked for it; its result is the exit status."""
    status: object = CRASHED
    try:
        gc.freeze()  # what the test run has loaded is not searched here, where each look would copy its memory
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
            os.dup2(file, number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
        logging.root.handlers.clear()
        try:
            status = act()
        except SystemExit as end:
            status = 0 if end.code is None else end.code
        except Exception:  # as an interpreter ends with it
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status if isinstance(status, int) else CRASHED)
