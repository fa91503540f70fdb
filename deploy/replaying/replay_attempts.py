"""Runs `causal replay`: verifies epochs of a recording, or stops before the event that is asked for.

Each attempt runs in a process of its own, because a process loads the code of one version once, and because the way
back is a new replay from the checkpoint. Exit status: 0; 1 if the replay differs from the recording or there is no such
event; 2 for wrong usage. The job, its stores and its recording are not changed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from causal.errors import CausalError, PipelineError
from deploy.exit_status import DONE, FAILED, WRONG
from deploy.jobs.chosen import chosen_recording
from deploy.printable import printable
from deploy.replaying.replayed_bundle import begin_at_point
from operators.queries.key_spelling import key_of
from operators.recordings.bundle import Bundle, open_recorded
from operators.recordings.recording import EXCEPTION, RecordedFailure, Recording
from operators.replay.debugger import Debugger, lines_at
from operators.replay.exact import Replay
from operators.replay.located_rows import located
from operators.replay.remote_debugger import RemoteDebugger
from operators.replay.search import ANY, Search, Stop, Wanted, compiled
from operators.replay.verification import Verified, verify

PORT_MAX = 65_535
AGAIN = 75
"""The exit status of an attempt that asks for another one."""
NOT_THERE = 76
"""The exit status of an attempt that has not stopped, although something was asked for."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The part of a recording that one process replays.

    Attributes:
        first, last: the epochs; the replay begins at the checkpoint before the first.
        until: the last epoch of those that are replayed, also by later attempts with the code of later versions.
        tasks: the tasks to replay with their upstream tasks; all if empty.
        wanted: where it stops; None if it only verifies.
        port: the port to which an IDE connects; None without one.
    """

    first: int
    last: int
    until: int
    tasks: tuple[str, ...]
    wanted: Wanted | None
    in_pdb: bool
    port: int | None = None


def replay(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status.

    Raises:
        PipelineError: wrong usage, a place that is not recorded, or a source that cannot be read again.
        CorruptData: the recording is damaged.
        Unavailable: the recorded input cannot be read, or the store of the recording does not answer.
    """
    job = chosen_recording(arguments)
    with tempfile.TemporaryDirectory(prefix="causal-replay-") as directory:
        recording = open_recorded(job, Path(directory) / "recording")
        if isinstance(recording, Bundle):
            begin_at_point(recording, arguments)
        attempt, number = _first(recording, arguments), 0
        if attempt.wanted is None:
            return _verify(recording, job, attempt, Path(directory))
        while True:
            number += 1
            scratch = Path(directory) / str(number)
            scratch.mkdir()
            status, again = _in_process(recording, job, attempt, scratch)
            if again is not None:
                attempt = replace(attempt, wanted=again)
                continue
            if status != NOT_THERE:
                return status
            if attempt.last >= attempt.until:
                break
            first = attempt.last + 1
            attempt = replace(attempt, first=first, last=min(recording.run_of(first)[-1], attempt.until))
    print("causal: no event is what was asked for; the epochs above were searched to their end", file=sys.stderr)
    return FAILED


def _first(recording: Recording, arguments: argparse.Namespace) -> Attempt:
    """Return the attempt that the arguments ask for."""
    task = arguments.task or ""
    key = ANY if arguments.key is None else key_of(arguments.key)
    if arguments.condition:
        compiled(arguments.condition)
    if arguments.debugpy is not None and not 0 <= arguments.debugpy <= PORT_MAX:
        raise PipelineError(f"--debugpy {arguments.debugpy}: a port is a number up to {PORT_MAX}; 0 is any free one")
    recorded = recording.replayable()
    if not recorded:
        recording.version_at(recorded.start)  # raises: nothing is recorded yet
    wanted = Wanted(recorded.start, task, key, arguments.condition or "")
    searches = arguments.pdb or arguments.debugpy is not None or arguments.condition or arguments.key is not None
    first, until = recorded.start, recorded[-1]
    if arguments.at_crash:
        failure = _failure(recording, arguments, task)
        first, searches, task = failure.epoch, True, failure.task
        wanted = replace(wanted, epoch=first, task=task, log_bytes=failure.log_bytes, raises=failure.mode == EXCEPTION)
    elif arguments.epoch is not None:
        first = arguments.epoch
        until = recording.run_of(first)[-1] if first not in recorded else until
        until = until if searches else first
        wanted = replace(wanted, epoch=first)
    elif arguments.at is not None:
        at_ns = time_of(arguments.at)
        first, searches = recording.epoch_at(at_ns), True
        wanted = replace(wanted, epoch=first, at_ns=at_ns)
    elif arguments.row is not None:
        account, position = row_of(arguments.row)
        first, task, channel = located(recording, account, position)
        searches = True
        wanted = Wanted(first, element=(channel, position))
    last = recording.run_of(first)[-1]
    until = until if first in recorded else last
    tasks = (task,) if task else ()
    place = first, min(last, until), until
    return Attempt(*place, tasks, wanted if searches else None, arguments.pdb, arguments.debugpy)


def _failure(recording: Recording, arguments: argparse.Namespace, task: str) -> RecordedFailure:
    """Return the last failure of a task, or of any, in the recording or in one epoch."""
    if arguments.at is not None or arguments.row is not None:
        raise PipelineError(
            "--at-crash: use neither --at nor --row; with --epoch, it is the last failure in that epoch"
        )
    epoch = arguments.epoch
    if epoch is not None:
        recording.version_at(epoch)  # raises: it is not recorded
    for each in reversed(recording.failures(None if epoch is None else range(epoch - 1, epoch + 2))):
        if task in ("", each.task) and epoch in (None, each.epoch):
            return each
    where = "the recorded epochs" if epoch is None else f"epoch {epoch}"
    raise PipelineError(f"{f'{task} did not die' if task else 'no task died'} in {where}; see `causal recordings`")


def time_of(text: str, option: str = "--at") -> int:
    """Return a wall-clock time in ns, which an option names; a time of day is the last one that has passed.

    Raises:
        PipelineError: it is no time.
    """
    now = datetime.now().astimezone()
    try:
        if "-" in text or "T" in text:
            return int(datetime.fromisoformat(text).astimezone().timestamp() * 1e9)
        of_day = datetime.strptime(text, "%H:%M:%S" if text.count(":") == 2 else "%H:%M").time()
    except ValueError:
        raise PipelineError(f"{option} {text}: use a time such as 2026-11-27T14:03:10, or 14:03:10") from None
    local = datetime.combine(now.date(), of_day).astimezone()
    return int((local if local <= now else local - timedelta(days=1)).timestamp() * 1e9)


def row_of(text: str) -> tuple[str, int]:
    """Return the sink or its account, and the position of a row.

    Raises:
        PipelineError: it does not name a row.
    """
    account, colon, position = text.rpartition(":")
    if not colon or not account or not position.isdecimal():
        raise PipelineError(f"--row {text}: use SINK:POSITION, such as out/0:17; positions begin at 0")
    return account, int(position)


def _in_process(recording: Recording, job: Path, attempt: Attempt, scratch: Path) -> tuple[int, Wanted | None]:
    """Replay in a process of its own; return its exit status, and what another one has to look for."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.close(reading)
        status = FAILED
        try:
            status = _attempted(recording, job, attempt, scratch, writing)
        except CausalError as problem:
            print(f"causal: {printable(str(problem))}", file=sys.stderr)
            status = WRONG if isinstance(problem, PipelineError) else FAILED
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    os.close(writing)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the debugger
    try:
        with os.fdopen(reading, "rb") as pipe:
            content = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        signal.signal(signal.SIGINT, before)
    return status, Wanted.of(content) if content else None


def _verify(recording: Recording, job: Path, attempt: Attempt, directory: Path) -> int:
    """Perform all epochs of an attempt, and say what was verified."""
    began_s, scratch = time.monotonic(), directory / "verification"
    scratch.mkdir()
    sys.stdout.flush()
    verified = verify(recording, job, attempt.first, attempt.until, scratch, attempt.tasks)
    print(_performed(verified, attempt.until, time.monotonic() - began_s))
    tail = recording.tail()
    for end, log in tail.failed() if tail is not None and attempt.until in tail.epochs else ():
        if end.task in verified.tasks:
            print(f"{end.task} raised, as recorded: {printable(log.failure)}")
    return DONE


def _performed(verified: Verified, last: int, took_s: float) -> str:
    what = f"epochs {verified.first} to {last} of {', '.join(verified.tasks)}"
    return f"{what}: {verified.events:,} events in {took_s:.1f} s, {verified.channels:,} channels verified"


def _attempted(recording: Recording, job: Path, attempt: Attempt, scratch: Path, writing: int) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    began_s = time.monotonic()
    performed = Replay(recording, job, attempt.first, scratch, attempt.tasks)
    begins = performed.epoch

    def end(status: int = DONE) -> None:
        sys.stdout.flush()
        os._exit(status)

    def elsewhere(wanted: Wanted) -> None:
        os.write(writing, wanted.packed())
        end(AGAIN)

    def say(text: str) -> None:
        print(*map(printable, text.splitlines()), sep="\n", flush=True)

    debugger: Debugger | RemoteDebugger | None = None
    if attempt.in_pdb:
        debugger = Debugger(elsewhere, end)
    elif attempt.port is not None:
        debugger = RemoteDebugger(attempt.port, say, elsewhere)

    stops = 0

    def stopped(stop: Stop) -> None:
        nonlocal stops
        stops += 1
        if debugger is not None:
            debugger.stopped(search, stop)
        elif (outlook := search.outlook(stop)) is not None:
            say("\n".join(lines_at(stop, outlook)))
            end()

    search: Search = Search(performed, attempt.wanted, stopped, elsewhere)
    search.run(attempt.last)
    performed.close()
    cone = performed.cone
    verified = Verified(begins, performed.tasks, cone.events, cone.verified)
    print(_performed(verified, attempt.last, time.monotonic() - began_s))
    return NOT_THERE if attempt.wanted is not None and not stops else DONE
