"""Performs recorded epochs again to verify each channel, on all cores (0054).

The intervals between kept checkpoints do not depend on each other, so each is performed by a process of its own, from
its own checkpoint, and several at the same time. No process watches records, which would cost as much again.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from causal.errors import CorruptData, OperatorFailed, PipelineError, ReplayDivergence, Unavailable
from causal.records.values import decode, encode
from operators.recordings.recording import Recording
from operators.replay.exact import Replay
from operators.runtime.forked import Fork

WITHIN_S = 4 * 3600.0
"""The time that an interval may take."""
PROCESSES_MAX = 16
"""The most intervals that are performed at the same time; each needs the state of its tasks in memory."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a verification.

    Attributes:
        first: the epoch of the first checkpoint.
        tasks: the names of the tasks that were performed, upstream first.
        events: the number of events.
        channels: the number of channels that were compared, each once per barrier.
    """

    first: int
    tasks: Sequence[str]
    events: int
    channels: int


def verify(
    recording: Recording, job: Path, first: int, last: int, scratch: Path, tasks: Sequence[str] = ()
) -> Verified:
    """Perform consecutive epochs, from the kept checkpoint before the first of them, each with the code of its version.

    Args:
        scratch: an empty directory for what readers write.
        tasks: as for `Replay`.

    Raises:
        ReplayDivergence: the earliest interval that differs from the recording; the line names the first difference.
        PipelineError, OperatorFailed, CorruptData, Unavailable: as for `Replay` and `Replay.perform_epoch`.
    """
    begins = recording.start_of(first)
    events = channels = 0
    names = list[str]()
    with ExitStack() as opened:
        running: deque[Fork] = deque()
        waiting = _intervals(recording, begins, last)
        while True:
            while len(running) < _processes() and (interval := next(waiting, None)) is not None:
                running.append(opened.enter_context(_begun(recording, job, interval, scratch, tasks)))
            if not running:
                return Verified(begins, names, events, channels)
            own_names, own_events, own_channels = _result(running.popleft())
            names = list(dict.fromkeys([*names, *own_names]))
            events, channels = events + own_events, channels + own_channels


def _processes() -> int:
    return min(len(os.sched_getaffinity(0)), PROCESSES_MAX)


def _intervals(recording: Recording, begins: int, last: int) -> Iterator[range]:
    """Yield the epochs from each kept checkpoint to the next one."""
    starts = [epoch for epoch in recording.checkpoints() if begins <= epoch <= last]
    for start, end in zip(starts, [*starts[1:], last + 1], strict=True):
        yield range(start, end)


def _begun(recording: Recording, job: Path, interval: range, scratch: Path, tasks: Sequence[str]) -> Fork:
    """Return a process that performs an interval."""
    own = scratch / str(interval.start)

    def performed() -> bytes:
        own.mkdir()
        try:
            replay = Replay(recording, job, interval.start, own, tasks)
            while replay.epoch < interval.stop:
                replay.perform_epoch()
            replay.close()
        except ReplayDivergence as problem:
            cause = str(problem).removeprefix(f"{problem.where} ").partition(" (ReplayDivergence: ")[0]
            return encode([_DIVERGED, [problem.where, problem.difference, cause]])
        except _FAILURES as problem:
            kind = next(kind for kind, each in enumerate(_FAILURES) if isinstance(problem, each))
            return encode([kind, [str(problem)]])
        return encode([_DONE, [list(replay.tasks), replay.cone.events, replay.cone.verified]])

    return Fork(performed)


_FAILURES = (PipelineError, OperatorFailed, CorruptData, Unavailable)
_DIVERGED, _DONE = len(_FAILURES), len(_FAILURES) + 1
"""The kinds of results, after those of failures."""


def _result(fork: Fork) -> tuple[Sequence[str], int, int]:
    """Wait for an interval."""
    kind, content = decode(fork.result(WITHIN_S))
    if kind == _DONE:
        tasks, events, channels = content
        return tasks, events, channels
    raise ReplayDivergence(*content) if kind == _DIVERGED else _FAILURES[kind](*content)
