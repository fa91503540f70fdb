"""Measures what a replay takes per event: a counting task is killed, and its successor performs its log again.

    python -m benchmarks.costs.budget_replay EVENTS PER_TURN

PER_TURN 0: as many as the task performs by itself.  One record per event; source, count and sink in one process
without sockets (`scale_data`), CPU time inside `TaskProtocol.handle` of the successor from its start until it is live,
less what looking at the clock takes.  It prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from time import thread_time_ns

from benchmarks.costs.budget_parts import look_ns
from benchmarks.harness.runs import RunFailed
from benchmarks.scale.scale_data import DataPlane, Shape
from causal.determinants import DeterminantCodec
from causal.effects import Effect
from causal.events import Event
from causal.task.recovery import State
from causal.topology import FULL_DEPTH

TASK = "count0/0"


class Replayed(DataPlane):
    """Looks at the clock around each step of the one task once it has been killed."""

    def __init__(self, events: int, per_turn: int) -> None:
        self.took_ns = 0
        self._look_ns = look_ns()
        self._watched = -1
        self._per_turn = per_turn
        super().__init__(Shape(2, 1, 1), FULL_DEPTH, 2 * events, 1)

    def step(self, index: int, event: Event) -> list[Effect]:
        if index != self._watched or self.tasks[index].recovery.state is State.RUNNING:
            return super().step(index, event)
        if self._per_turn:
            self.tasks[index].replayed_per_turn = self._per_turn
        began_ns = thread_time_ns()
        effects = super().step(index, event)
        self.took_ns += thread_time_ns() - began_ns - self._look_ns
        return effects

    def replay(self) -> int:
        """Kill the task half way, and let all run to their end; returns how many events it performed again.

        Raises:
            RunFailed: a row is missing at the end.
        """
        self.run(until_read=self.records // 2)
        task = self.topology.named(TASK)
        if task is None:
            raise RunFailed(f"there is no task {TASK}")
        log = self.tasks[task.index].holdings.own.bytes_of(0)
        self._watched = task.index
        self.fail(TASK)
        self.run()
        if self.rows() != self.records:
            raise RunFailed(f"{self.rows()} rows came out of {self.records} records after a failure")
        codec, place, events = DeterminantCodec(), 0, 0
        while place < len(log):
            _, place = codec.decode(log, place)
            events += 1
        return events


def run(events: int, per_turn: int) -> dict[str, float]:
    """µs per event, and how many there were.

    Raises:
        RunFailed: nothing was replayed.
    """
    plane = Replayed(events, per_turn)
    replayed = plane.replay()
    if not replayed:
        raise RunFailed(f"the log of {TASK} was empty when it was killed")
    return {"us": plane.took_ns / 1000 / replayed, "events": replayed}


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))))
