"""The order of effects while a sink's store is unavailable, and when a beat may say that the task has ended."""

from __future__ import annotations

from causal.effects import Effect, Phase, ReportSnapshot, Send, TruncateSink
from causal.task.performer import EffectQueue


class Shell:
    """Performs effects; refuses those of the store while that is `away`."""

    def __init__(self) -> None:
        self.away = False
        self.done: list[Effect] = []
        self.queue = EffectQueue(self.perform)

    def perform(self, effect: Effect) -> bool:
        if self.away and isinstance(effect, TruncateSink):
            return False
        self.done.append(effect)
        return True


WRITE, SNAPSHOT, FRAME = TruncateSink(1, 1), ReportSnapshot(1, []), Send(2, [b"frame"])
FINISHED, LOST = Phase("finished"), Phase("lost")


def test_effects_are_performed_in_order() -> None:
    shell = Shell()
    shell.queue.perform([WRITE, FRAME, FINISHED])
    assert shell.done == [WRITE, FRAME, FINISHED]
    assert not shell.queue


def test_what_follows_a_refused_write_waits_and_neighbours_are_answered() -> None:
    shell = Shell()
    shell.away = True
    shell.queue.perform([WRITE, SNAPSHOT, FRAME, LOST, FINISHED])
    shell.queue.retry()
    assert shell.queue
    assert shell.done == [FRAME, LOST]
    shell.away = False
    shell.queue.retry()
    assert not shell.queue
    assert shell.done == [FRAME, LOST, WRITE, SNAPSHOT, FINISHED]


def test_what_comes_later_stays_behind_what_waits() -> None:
    shell = Shell()
    shell.away = True
    shell.queue.perform([WRITE])
    shell.queue.perform([SNAPSHOT])
    shell.away = False
    shell.queue.perform([FINISHED])
    assert shell.done == []
    shell.queue.retry()
    assert shell.done == [WRITE, SNAPSHOT, FINISHED]


def test_a_beat_says_that_the_task_has_ended_only_after_its_last_rows_are_written() -> None:
    shell = Shell()
    shell.away = True
    shell.queue.perform([WRITE, FINISHED])
    assert shell.queue.reported_state("finished", "running") == "running"
    assert shell.queue.reported_state("collecting", "collecting") == "collecting"
    shell.away = False
    shell.queue.retry()
    assert shell.queue.reported_state("finished", "running") == "finished"
