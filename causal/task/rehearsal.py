"""Performs one epoch of a task again in another process and compares the results, to detect nondeterminism (D7).

A rehearsal is a replay by the same `Execution` as in a recovery, but without a failure and without neighbours. The
elements come from a recording.
"""

from __future__ import annotations

from collections.abc import Sequence

from causal.channels.ends import Channels
from causal.config import JobConfig
from causal.cut import Cut
from causal.effects import Effect
from causal.errors import ReplayDivergence
from causal.ids import TaskIndex
from causal.logs.dissemination import Holdings
from causal.logs.log import LogDelta
from causal.ports import Chain, Environment
from causal.task.determinant_cursor import DeterminantCursor
from causal.task.execution import Execution
from causal.task.recording import Recorded
from causal.task.recovery import Recovery, RecoveryStep
from causal.topology import Topology


def rehearse(
    topology: Topology,
    task: TaskIndex,
    config: JobConfig,
    chain: Chain,
    live: Environment,
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
    operators = " > ".join(topology.tasks[task].operators)
    name = f"{topology.tasks[task].name} ({operators})" if operators else str(topology.tasks[task].name)
    channels = Channels(topology, task, config, cut)
    holdings = Holdings(topology, task, config.sharing_depth, cut.epoch)
    holdings.own.merge(LogDelta(task, cut.epoch, 0, recorded.log))
    cursor = DeterminantCursor(holdings.own, cut.epoch, name)
    cursor.last_ns = cut.last_ns
    cursor.complete = True
    recovery = Recovery(name)
    recovery.step(RecoveryStep.STARTED, 0)
    recovery.step(RecoveryStep.COLLECTED, 0)
    execution = Execution(recovery, config, chain, live, channels, holdings, cursor, cut, [], 0)
    for delivery in recorded.deliveries:
        channel = channels.inputs[delivery.input]
        channel.accept_chunks(channel.next, delivery.chunks)
    effects: list[Effect] = []
    while cursor.epoch == cut.epoch:
        if not execution.rehearse_next(effects):
            raise ReplayDivergence(name, f"epoch {cut.epoch}: the rehearsal asks for more input than the task had")
        effects.clear()
    _compare(name, cut.epoch, execution.checkpointing.cuts[cursor.epoch], reached, [o.name for o in channels.outputs])


def _compare(name: str, epoch: int, rehearsed: Cut, reached: Cut, outputs: Sequence[str]) -> None:
    for output, channel in zip(outputs, reached.outputs, strict=True):
        if rehearsed.outputs.get(channel) != tuple(reached.outputs[channel]):
            raise ReplayDivergence(
                name, f"epoch {epoch}: when it was performed again from its own log, its output {output} differed"
            )
