"""Both ends of a conversation with a process that answers questions about a job: a line each, the answers in JSON.

Reading a recording, or loading a pipeline's code, takes time and memory that the process that serves the page must not
spend. The child starts with the first question and ends when its input ends, or after a while without a question.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from causal.errors import CausalError, Unavailable
from causal.process.interpreter import module_command

ANSWER_BYTES_MAX = 4 << 20
TURN_S = 10.0
"""The time for which a question waits for the previous one."""
IDLE_S = 60.0
"""The time without a question after which a child ends."""


class Child:
    """A process that is asked, from several threads, but one question at a time.

    Args:
        module: the module that the process runs; its main function calls `answer_questions`.
        job: the job directory.
        what: the subject of the questions, as errors name it: `its rows`.
    """

    def __init__(self, module: str, job: Path, what: str) -> None:
        self._module = module
        self._job = job
        self._what = what
        self._asking = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def start(self) -> None:
        """Start the process if it does not run, so that it loads its modules before the first question."""
        with self._asking:
            if not self._closed:
                self._started()

    def ask(self, question: str, within_s: float) -> dict[str, Any]:
        """Return the answer to one line.

        Raises:
            Unavailable: there is no answer within the time, the process has ended, or other questions are in progress.
        """
        if not self._asking.acquire(timeout=TURN_S):
            raise Unavailable(f"another question about {self._what} is in progress; try again in a moment")
        try:
            try:
                return self._answer(question, within_s)
            except (OSError, ValueError):
                self._end()
                raise Unavailable(f"the process that reads {self._what} has ended") from None
        finally:
            self._asking.release()

    def _answer(self, question: str, within_s: float) -> dict[str, Any]:
        process = self._started()
        questions, answers = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
        try:
            _write(questions, os.fsencode(question))
        except BrokenPipeError:  # it ended after a while without a question
            self._end()
            process = self._started()
            questions, answers = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
            _write(questions, os.fsencode(question))
        if not select.select([answers], [], [], within_s)[0]:
            self._end()
            raise Unavailable(f"{self._what} could not be read within {within_s:.0f} s")
        answer: dict[str, Any] = json.loads(answers.readline(ANSWER_BYTES_MAX))
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            if self._closed:
                raise OSError("the dashboard ends")
            self._process = subprocess.Popen(
                module_command(self._module), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            _write(cast(IO[bytes], self._process.stdin), os.fsencode(self._job))
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            try:
                cast(IO[bytes], pipe).close()
            except BrokenPipeError:  # a question that it never read
                pass

    def close(self) -> None:
        """End the process, so that a question under way is not answered, and start no other."""
        self._closed, process = True, self._process
        if process is not None:
            process.kill()
        with self._asking:
            self._end()


def _write(questions: IO[bytes], line: bytes) -> None:
    questions.write(line + b"\n")
    questions.flush()


def answer_questions(answer: Callable[[Path, str], dict[str, Any]], idle_s: float = IDLE_S) -> int:
    """Answer the questions of a `Child` until there are no more; an error becomes an answer with a `problem`.

    What the pipeline's code prints is kept apart from the answers.

    Args:
        answer: the answer to a question about the job in a directory.
        idle_s: the time without a question after which the process ends; 0 if it never does.
    """
    answers, questions = os.fdopen(os.dup(1), "w"), open(0, "rb", buffering=0, closefd=False)  # nothing is read ahead
    os.dup2(2, 1)
    job = Path(os.fsdecode(questions.readline().rstrip(b"\n")))
    while not idle_s or select.select([questions], [], [], idle_s)[0]:
        line = questions.readline()
        if not line:
            break
        try:
            content = answer(job, line.decode(errors="replace").strip())
        except (CausalError, OSError) as problem:
            content = {"problem": " ".join(str(problem).split())}
        print(json.dumps(content), file=answers, flush=True)
    return 0
