"""The task that a test performs: one factory, so that a new argument of `TaskProtocol` has one place here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from causal.config import JobConfig
from causal.cut import Cut
from causal.ids import TaskIndex
from causal.logs.dissemination import NO_KNOWLEDGE, Knowledge
from causal.logs.rollback import NO_ROLLBACK, Rollback
from causal.ports import PlainChain
from causal.snapshot_files import SnapshotFile
from causal.task.task import TaskProtocol
from causal.topology import Topology

FILE: SnapshotFile = ("f", 1, "d")
"""A file of a checkpoint, where only its existence matters."""


def silent(line: str) -> None:
    """Report nothing."""


def task_of(
    topology: Topology,
    task: int,
    incarnation: int,
    config: JobConfig,
    chain: Any = None,
    live: Any = None,
    cut: Cut | None = None,
    files: Sequence[SnapshotFile] | None = None,
    report: Callable[[str], None] = silent,
    rollback: Rollback = NO_ROLLBACK,
    retained: Knowledge = NO_KNOWLEDGE,
    replayed_per_turn: int = 0,
    small_per_turn: int = 0,
) -> TaskProtocol:
    """Return one incarnation of a task.

    Args:
        chain: by default, one that keeps no state.
        files: by default, one file if `cut` is that of a checkpoint.
        replayed_per_turn, small_per_turn: the events that a replay, and a live task, performs before it sends; by
            default as in a job.
    """
    cut = cut or Cut()
    files = [FILE] * bool(cut.epoch) if files is None else files
    chain = chain or PlainChain()
    protocol = TaskProtocol(
        topology, TaskIndex(task), incarnation, config, chain, live, cut, list(files), report, rollback, retained
    )
    protocol.replayed_per_turn = replayed_per_turn or protocol.replayed_per_turn
    protocol.small_per_turn = small_per_turn or protocol.small_per_turn
    return protocol
