"""A process that performs one version of a pipeline (0042).

Two versions of the same modules cannot share a process: what a function imports when it is called, and every global
variable, would be that of only one of them.  Forks of one process also iterate over sets of texts in the same order.
"""

from __future__ import annotations

import ctypes
import os
import signal
import tempfile
from collections.abc import Callable
from dataclasses import astuple
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import TracebackType
from typing import Any

from causal.config import JobConfig
from causal.errors import CausalError, OperatorFailed, PipelineError
from causal.records.values import decode, encode
from operators.builder.loading import load_archived
from operators.capture.install import install
from operators.code_archive.archive import Archive
from operators.replay.performance import Checkpoint, Performance, Rows, Step
from operators.tracebacks import described

_PR_SET_PDEATHSIG = 1
ANSWER_S = 60.0
"""The time that a version has for a step."""

_ROWS, _REFUSED, _FAILED = range(3)
"""The kinds of answers: the rows of a step, that the version cannot be performed, or that it has failed."""


class Performer:
    """A process that performs one version from a checkpoint; as a context manager, it ends with the context.

    Args:
        directory: the directory of the job.
        allow_dropped: whether state without an operator may be left behind.
    """

    def __init__(
        self, config: JobConfig, archive: Archive, checkpoint: Checkpoint, allow_dropped: bool, directory: Path
    ) -> None:
        def begun(scratch: Path) -> Performance:
            install(config.hidden_nondeterminism)
            pipeline = load_archived(archive, config.settings, lasting=True)
            return Performance(pipeline, config, checkpoint, allow_dropped, directory, scratch)

        self._scratch = tempfile.TemporaryDirectory(prefix="causal-canary-")
        self._connection, other = Pipe()
        parent = os.getpid()
        # Python would discard an exception of Ctrl-C in the functions that it calls after a fork.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
        self._process = os.fork()
        if not self._process:
            self._connection.close()
            _serve(begun, Path(self._scratch.name), other, parent)
        other.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __enter__(self) -> Performer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        self._connection.close()
        self._scratch.cleanup()

    def await_begun(self, within_s: float) -> Rows:
        """Wait until the version has loaded its state, and return no rows.

        Raises:
            PipelineError: the version cannot be performed.
            OperatorFailed: it has failed, or takes too long.
        """
        return self._answer(within_s)

    def perform(self, step: Step) -> None:
        """Begin to perform a step, the rows of which `performed` returns."""
        try:
            self._connection.send_bytes(encode(list(astuple(step))))
        except OSError:
            pass  # the process has died, which `performed` reports

    def performed(self) -> Rows:
        """Return the rows of the step.

        Raises:
            PipelineError, OperatorFailed: as for `await_begun`.
        """
        return self._answer(ANSWER_S)

    def _answer(self, within_s: float) -> Rows:
        if not self._connection.poll(within_s):
            raise OperatorFailed(f"its process has not answered within {within_s:.0f} s")
        try:
            kind, content = decode(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise OperatorFailed("its process died") from None
        if kind == _ROWS:
            rows: Rows = content
            return rows
        raise (PipelineError if kind == _REFUSED else OperatorFailed)(content)


def _serve(begun: Callable[[Path], Performance], scratch: Path, connection: Connection, parent: int) -> None:
    """Perform the steps that arrive, in a forked process; this function never returns."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        if os.getppid() == parent:
            _perform(begun, scratch, connection)
    finally:
        os._exit(0)


def _perform(begun: Callable[[Path], Performance], scratch: Path, connection: Connection) -> None:
    try:
        performance = begun(scratch)
        _send(connection, _ROWS, {})
        while True:
            fields: list[Any] = decode(connection.recv_bytes())
            _send(connection, _ROWS, performance.perform(Step(*fields)))
    except EOFError:
        return
    except PipelineError as problem:
        _send(connection, _REFUSED, str(problem))
    except CausalError as problem:
        _send(connection, _FAILED, str(problem))
    except BaseException as problem:
        _send(connection, _FAILED, described(problem))


def _send(connection: Connection, kind: int, content: Any) -> None:
    connection.send_bytes(encode([kind, content]))
