"""The bound on the work that a task repeats after a failure (`replay_target_ms`), which is its work since a checkpoint.

The duration of a replay depends on how long the task has worked since the checkpoint, not on the age of the checkpoint.
For each second, a fully loaded task adds a second of work to repeat, but a task in a quiet job adds only a few
milliseconds.  Work is counted from the first beat of each incarnation that this supervisor has received.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Work:
    """The working time of one incarnation."""

    incarnation: int
    began_ms: dict[int, int]
    """Epoch → the working time at which a beat first reported that epoch."""
    busy_ms: int = 0

    def since_ms(self, complete: int) -> int:
        """Return the working time since barrier `complete`; 0 until a beat shows that the task has passed that
        barrier.
        """
        if max(self.began_ms) < complete:
            return 0
        return self.busy_ms - self.began_ms[max(epoch for epoch in self.began_ms if epoch <= complete)]

    def pass_barriers(self, epoch: int, complete: int) -> None:
        """Record that the task has passed barrier `epoch`, and discard epochs that no failure can return to."""
        if epoch > max(self.began_ms):
            self.began_ms[epoch] = self.busy_ms
        kept = max((each for each in self.began_ms if each <= complete), default=0)
        self.began_ms = {each: busy_ms for each, busy_ms in self.began_ms.items() if each >= kept}


class ReplayBound:
    """The work that the tasks would have to repeat after a failure.

    Args:
        target_ms: the amount of work of one task that makes a checkpoint due; 0 for no bound.
    """

    def __init__(self, target_ms: int) -> None:
        self._target_ms = target_ms
        self._tasks: dict[str, _Work] = {}

    def worked(self, task: str, incarnation: int, epoch: int, busy_s: float, complete: int) -> bool:
        """Record the working time from a task's beat; return whether it makes a checkpoint due.

        Args:
            epoch: the last barrier that the task has passed.
            busy_s: the working time of this incarnation.
            complete: the last complete checkpoint; the task began at it or at a later one.
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
        """Return whether any task would have to repeat more work than the bound allows."""
        return self._target_ms > 0 and any(work.since_ms(complete) >= self._target_ms for work in self._tasks.values())
