"""Performs one epoch of a task again in another process and compares the results, to detect nondeterminism (D7).

A rehearsal is a replay without a failure and without neighbours. The elements come from a recording.
"""

from __future__ import annotations

from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import ReplayDivergence
from causal.ids import TaskIndex
from causal.ports import Chain
from causal.task.recording import Recorded
from causal.task.replay import TaskReplay
from causal.topology import Topology


def rehearse(
    topology: Topology,
    task: TaskIndex,
    config: JobConfig,
    chain: Chain,
    cut: Cut,
    recorded: Recorded,
    reached: Cut,
) -> None:
    """Perform the events of `recorded`, from `cut` to the next barrier, and compare the resulting cut with `reached`.

    Args:
        chain: the chain, restored to `cut`. Afterwards it is at the barrier of `reached`, and its state may also be
            compared.
        reached: the cut that the task itself wrote at that barrier.

    Raises:
        ReplayDivergence: the rehearsal performed different events, or its output differs.
        OperatorFailed: user code raised an exception that it did not raise in the task.
    """
    replay = TaskReplay(topology, task, config, chain, cut)
    replay.begin_epoch(recorded.log)
    for delivery in recorded.deliveries:
        replay.accept(delivery.input, delivery.chunks)
    while replay.epoch == cut.epoch:
        if replay.next() is None:
            raise ReplayDivergence(
                replay.name, f"epoch {cut.epoch}: the rehearsal asks for more input than the task had"
            )
        replay.perform()
    replay.verify(reached)
