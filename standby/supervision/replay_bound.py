"""The bound on the work that a task repeats after a failure (`replay_target_ms`): its work since the last checkpoint.

The duration of a replay depends on how long the task has worked, not on the age of the checkpoint: in each second since
the checkpoint, a task at full throttle adds a second of work to repeat, and a task in a quiet job a few milliseconds.
The work is counted from the first beat of each incarnation that this supervisor has received.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Work:
    """The working time of one incarnation."""

    incarnation: int
    began_ms: dict[int, int]
    """Epoch → the working time when a beat first reported that epoch."""
    busy_ms: int = 0

    def since_ms(self, complete: int) -> int:
        """Return the working time since barrier `complete`; 0 while no beat has shown that the task has passed it."""
        if max(self.began_ms) < complete:
            return 0
        return self.busy_ms - self.began_ms[max(epoch for epoch in self.began_ms if epoch <= complete)]

    def pass_barriers(self, epoch: int, complete: int) -> None:
        """Record that the task has passed barrier `epoch`, and discard epochs to which no failure returns."""
        if epoch > max(self.began_ms):
            self.began_ms[epoch] = self.busy_ms
        kept = max((each for each in self.began_ms if each <= complete), default=0)
        self.began_ms = {each: busy_ms for each, busy_ms in self.began_ms.items() if each >= kept}


class ReplayBound:
    """The work of all tasks that a failure would make them repeat.

    Args:
        target_ms: the work of one task at which a checkpoint is due; 0 for no bound.
    """

    def __init__(self, target_ms: int) -> None:
        self._target_ms = target_ms
        self._tasks: dict[str, _Work] = {}

    def worked(self, task: str, incarnation: int, epoch: int, busy_s: float, complete: int) -> bool:
        """Record the working time in a beat of a task; return whether a checkpoint is due because of it.

        Args:
            epoch: the last barrier that the task has passed.
            busy_s: the working time of this incarnation.
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
