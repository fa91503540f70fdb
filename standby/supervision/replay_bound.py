"""The bound on what a failure makes a task repeat (`replay_target_ms`): its work since the last complete checkpoint.

How long a replay takes follows from how long the task has worked, not from how long ago the checkpoint was: at full
throttle a second of work is repeated, in a quiet job a few milliseconds.  It is counted from the first beat of each
incarnation that this supervisor has received.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Work:
    """The working time of one incarnation."""

    incarnation: int
    began_ms: dict[int, int]
    """Epoch → working time when a beat showed it first."""
    busy_ms: int = 0

    def since_ms(self, complete: int) -> int:
        """Working time since barrier `complete`; 0 while no beat has shown that the task has passed it."""
        if max(self.began_ms) < complete:
            return 0
        return self.busy_ms - self.began_ms[max(epoch for epoch in self.began_ms if epoch <= complete)]

    def pass_barriers(self, epoch: int, complete: int) -> None:
        """Record that the task has passed barrier `epoch`, and forget what no failure goes back to."""
        if epoch > max(self.began_ms):
            self.began_ms[epoch] = self.busy_ms
        kept = max((each for each in self.began_ms if each <= complete), default=0)
        self.began_ms = {each: busy_ms for each, busy_ms in self.began_ms.items() if each >= kept}


class ReplayBound:
    """The work of all tasks that a failure would make them repeat.

    Args:
        target_ms: so much of one task at most, then a checkpoint is due; 0 for no bound.
    """

    def __init__(self, target_ms: int) -> None:
        self._target_ms = target_ms
        self._tasks: dict[str, _Work] = {}

    def worked(self, task: str, incarnation: int, epoch: int, busy_s: float, complete: int) -> bool:
        """Record how long a task has worked by one of its beats; returns whether a checkpoint is due because of it.

        Args:
            epoch: the last barrier that the task has passed.
            busy_s: working time of this incarnation.
            complete: the last complete checkpoint; the task begins at it, or at a later one.
        """
        if not self._target_ms:
            return False
        busy_ms = round(busy_s * 1e3)
        work = self._tasks.get(task)
        if work is None or work.incarnation != incarnation:
            work = self._tasks[task] = _Work(incarnation, {complete: busy_ms})
        work.busy_ms = busy_ms
        work.pass_barriers(epoch, complete)
        return work.since_ms(complete) >= self._target_ms

    def due(self, complete: int) -> bool:
        """Return whether a task would repeat more than the bound."""
        return self._target_ms > 0 and any(work.since_ms(complete) >= self._target_ms for work in self._tasks.values())
