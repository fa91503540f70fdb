"""Commands that look at a job, and programs: each in a process forked from the test, which has loaded `causal` already.

A new interpreter would spend half a second of a processor on that for each.  What is run with `causal run` starts as
its user starts it (`tests.faults.job`).
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
CRASHED = 70
"""The exit status of a fork that did not even come to its command."""


def forked(directory: Path, arguments: tuple[str, ...], environment: Mapping[str, str], within_s: float) -> Ended:
    """Runs one command in that directory to its end; as `subprocess.run` with text and without input."""
    assert arguments[0] in LOOKING
    return forked_call(lambda: cli.main(arguments), directory, arguments, environment, within_s)


def forked_call(
    act: Callable[[], object],
    directory: Path,
    arguments: tuple[str, ...],
    environment: Mapping[str, str],
    within_s: float,
) -> Ended:
    """Calls it in that directory, in a process of its own, whose status is the result; `arguments` name it."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        pid = os.fork()
        if pid == 0:
            be(act, directory, environment, out.fileno(), err.fileno())
        status = _status(pid, time.monotonic() + within_s)
        if status is None:
            raise subprocess.TimeoutExpired(list(arguments), within_s)
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, status, out.read(), err.read())


Ended = subprocess.CompletedProcess[str]


def _status(pid: int, deadline_s: float) -> int | None:
    """The exit status of a child that has ended before the deadline; another is killed."""
    while time.monotonic() < deadline_s:
        ended, how = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(how)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


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
        except Exception:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status if isinstance(status, int) else CRASHED)
