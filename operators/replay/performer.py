"""A process that performs one version of a pipeline (0042).

Two versions of the same modules cannot share a process: what a function imports when it is called, and every global
variable, would be that of only one of them.  Forks of one process also iterate over sets of texts in the same order.
"""

from __future__ import annotations

import ctypes
import os
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import TracebackType
from typing import Any

from causal.config import JobConfig
from causal.errors import CausalError, OperatorFailed, PipelineError
from causal.records.values import decode, encode
from operators.builder.loading import load_archived
from operators.builder.pipeline import Pipeline
from operators.capture.install import install
from operators.code_archive.archive import Archive
from operators.engine.chain import FusedChain
from operators.graph import ordered, places
from operators.replay.answers import Answers, Passed, Rule, Unanswered
from operators.replay.observed_chain import OBSERVATION, Observation, Observed, ObservedChain
from operators.replay.performance import Checkpoint, Performance, Rows, Step
from operators.tracebacks import described

_PR_SET_PDEATHSIG = 1
ANSWER_S = 60.0
"""The time that a version has for a step."""

_DONE, _REFUSED, _FAILED, _UNANSWERED = range(4)
"""The kinds of answers: what was asked for, that the version cannot be performed, that it has failed, or that its code
has made a request that has no answer."""
_PERFORM, _SHOW = range(2)
"""The kinds of orders: perform steps, or send what an operator has received and emitted in one of the last steps."""


@dataclass(frozen=True, slots=True)
class Outside:
    """The outside world of a performance, which answers its requests.

    Attributes:
        path: the file of recorded answers; None if there are none.
        rule: the rule for other requests.
        leads: whether this is the recorded version.
    """

    path: Path | None
    rule: str
    leads: bool


@dataclass(frozen=True, slots=True)
class Performed:
    """The result of some steps of a version.

    Attributes:
        steps: the number of steps; if there are fewer than were ordered, the next one has failed, and the next order
            has its error as the answer.
        counts: the number of rows, by the subtask that would write them.
        content: the rows of each step, encoded; two versions with the same rows have the same content.
        passed: the answers for the other version.
        observed: for each step, operator → digests of what it received and emitted; empty if nothing is observed.
    """

    steps: int
    counts: Mapping[str, int]
    content: bytes
    passed: Sequence[Passed]
    observed: Sequence[Mapping[str, Sequence[int]]]

    def rows(self) -> list[Rows]:
        """Return the rows of each step."""
        rows: list[Rows] = decode(self.content)
        return rows


class Performer:
    """A process that performs one version from a checkpoint; as a context manager, it ends with the context.

    Args:
        directory: the directory of the job.
        allow_dropped: whether state without an operator may be left behind.
        outside: what answers requests; without it, a version with requests is refused.
        observing: whether the operators are observed.
    """

    def __init__(
        self,
        config: JobConfig,
        archive: Archive,
        checkpoint: Checkpoint,
        allow_dropped: bool,
        directory: Path,
        outside: Outside | None = None,
        observing: bool = False,
    ) -> None:
        def begun(scratch: Path) -> _Begun:
            install(config.hidden_nondeterminism)
            pipeline = load_archived(archive, config.settings, lasting=True)
            answers = None if outside is None else Answers(outside.path, Rule.load(outside.rule), outside.leads)
            fused = ObservedChain if observing else FusedChain
            performance = Performance(pipeline, config, checkpoint, allow_dropped, directory, scratch, answers, fused)
            return _Begun(pipeline, performance, answers, observing)

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

    def await_begun(self, within_s: float) -> Mapping[str, str]:
        """Wait until the version has loaded its state; return file:line of each operator, in topological order.

        Raises:
            PipelineError: the version cannot be performed.
            OperatorFailed: it has failed, or takes too long.
        """
        places: Mapping[str, str] = self._answer(within_s)
        return places

    def perform(self, steps: Sequence[Step], passed: Sequence[Passed] = ()) -> None:
        """Begin to perform some steps, the rows of which `performed` returns.

        Args:
            passed: answers that the other version was given.
        """
        self._order([_PERFORM, [list(astuple(step)) for step in steps], list(passed)])

    def performed(self) -> Performed:
        """Return what the version has made of the steps.

        Raises:
            Unanswered: the code has made a request that has no answer.
            PipelineError, OperatorFailed: as for `await_begun`.
        """
        steps, counts, content, passed, observed = self._answer(ANSWER_S)
        return Performed(steps, counts, content, [(name, answer) for name, answer in passed], observed)

    def observed(self, step: int, operator: str) -> Observed:
        """Return what an operator has received and emitted in one of the steps that were performed last."""
        self._order([_SHOW, step, operator])
        received, emitted = self._answer(ANSWER_S)
        return Observed([(key, record) for key, record in received], [(text, place) for text, place in emitted])

    def _order(self, order: list[Any]) -> None:
        try:
            self._connection.send_bytes(encode(order))
        except OSError:
            pass  # the process has died, which the answer reports

    def _answer(self, within_s: float) -> Any:
        if not self._connection.poll(within_s):
            raise OperatorFailed(f"its process has not answered within {within_s:.0f} s")
        try:
            kind, content = decode(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise OperatorFailed("its process died") from None
        if kind == _DONE:
            return content
        raise {_REFUSED: PipelineError, _FAILED: OperatorFailed, _UNANSWERED: Unanswered}[kind](content)


@dataclass(slots=True)
class _Begun:
    """A performance in its process.

    Attributes:
        observed: what was observed in the steps that were performed last.
        failure: the exception that ended the last step; the steps before it have been answered.
    """

    pipeline: Pipeline
    performance: Performance
    answers: Answers | None
    observing: bool
    observed: list[Observation] = field(default_factory=list)
    failure: BaseException | None = None

    def places(self) -> dict[str, str]:
        known = places(self.pipeline.nodes)
        return {node.name: known[node.name] for node in ordered(self.pipeline.nodes)}

    def perform(self, steps: Sequence[Sequence[Any]], passed: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the fields of `Performed`, for the steps before the first that fails.

        Raises:
            BaseException: the first of the steps has failed, or the one after the last that was answered.
        """
        if self.failure is not None:
            raise self.failure
        counts: dict[str, int] = {}
        each_rows: list[Rows] = []
        self.observed.clear()
        if self.answers is not None:
            self.answers.receive((name, answer) for name, answer in passed)
        for fields in steps:
            OBSERVATION.clear()
            try:
                rows = self.performance.perform(Step(*fields))
            except BaseException as problem:
                if not each_rows:
                    raise
                self.failure = problem
                break
            each_rows.append(rows)
            for task, own in rows.items():
                counts[task] = counts.get(task, 0) + len(own)
            if self.observing:
                self.observed.append(dict(OBSERVATION))
        observed = [{name: list(each.digests) for name, each in step.items()} for step in self.observed]
        passes = [] if self.answers is None else self.answers.take()
        return [len(each_rows), counts, encode(each_rows), passes, observed]

    def show(self, step: int, operator: str) -> list[Any]:
        """Return what an operator has received and emitted in a step."""
        observed = self.observed[step].get(operator, Observed())
        return [observed.received, observed.emitted]


def _serve(begun: Callable[[Path], _Begun], scratch: Path, connection: Connection, parent: int) -> None:
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


def _perform(begun: Callable[[Path], _Begun], scratch: Path, connection: Connection) -> None:
    known: Mapping[str, str] = {}
    try:
        version = begun(scratch)
        known = version.places()
        _send(connection, _DONE, known)
        while True:
            kind, first, second = decode(connection.recv_bytes())
            _send(connection, _DONE, (version.perform if kind == _PERFORM else version.show)(first, second))
    except EOFError:
        return
    except PipelineError as problem:
        _send(connection, _REFUSED, str(problem))
    except Unanswered as problem:
        place = known.get(problem.operator, "")
        _send(connection, _UNANSWERED, f"{place}: {problem}" if place else str(problem))
    except CausalError as problem:
        _send(connection, _FAILED, str(problem))
    except BaseException as problem:
        _send(connection, _FAILED, described(problem))


def _send(connection: Connection, kind: int, content: Any) -> None:
    connection.send_bytes(encode([kind, content]))
