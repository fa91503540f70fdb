"""Barriers on several inputs: the one that must come next, on each once, before the state is of one cut."""

from __future__ import annotations

from typing import Any, cast

import pytest

from benchmarks.harness.graphs import layered
from causal.channels.ends import Channels
from causal.channels.receiver import Receiver
from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import PeerViolation
from causal.task.checkpointing import Checkpointing

CONFIG = JobConfig(run="r", name="n", pipeline="p")


def aligned() -> tuple[Checkpointing, list[Receiver]]:
    """Return the alignment of a task with two inputs, and the inputs."""
    topology = layered((2, 1))
    inputs = Channels(topology, topology.tasks[2].index, CONFIG, Cut()).network
    return Checkpointing(cast(Any, None), Cut(), []), list(inputs)


def test_the_cut_is_there_when_the_barrier_has_come_on_every_input() -> None:
    checkpointing, inputs = aligned()
    assert len(inputs) == 2
    assert not checkpointing.deliver(inputs[1], 1, inputs, 0)
    assert [each.blocked for each in inputs] == [False, True]
    assert checkpointing.deliver(inputs[0], 1, inputs, 0)
    assert [each.blocked for each in inputs] == [False, False]


@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_another_barrier_than_the_next_is_refused_and_blocks_nothing(epoch: int) -> None:
    checkpointing, inputs = aligned()
    with pytest.raises(PeerViolation, match=rf"channel {inputs[0].id}: barrier {epoch} arrived in epoch 1"):
        checkpointing.deliver(inputs[0], epoch, inputs, 1)
    assert not any(each.blocked for each in inputs)
