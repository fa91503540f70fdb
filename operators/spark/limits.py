"""Pure functions that compute the end of a micro-batch, and check that an offset belongs to an output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from causal.errors import PipelineError


def advanced(start: Mapping[str, int], ends: Mapping[str, int], rows_max: int | None) -> dict[str, int]:
    """Return the positions after a micro-batch of at most `rows_max` rows.

    Tasks that have enough rows receive equal shares. The micro-batch contains some rows whenever any are available.
    """
    left = {task: end - start.get(task, 0) for task, end in sorted(ends.items()) if end > start.get(task, 0)}
    positions = {task: start.get(task, 0) for task in sorted(frozenset(start).union(ends))}
    room = sum(left.values()) if rows_max is None else rows_max
    by_need = sorted(left, key=lambda task: (left[task], task))
    for place, task in enumerate(by_need):
        share = min(left[task], -(-room // (len(by_need) - place)))
        positions[task] += share
        room -= share
    return positions


def checked(offset: Mapping[str, Any], run: str, ends: Mapping[str, int], path: str) -> dict[str, int]:
    """Return the positions from an offset that Spark has stored.

    Raises:
        PipelineError: the offset belongs to another run, or to rows that have been removed.
    """
    positions = {task: int(position) for task, position in offset.items() if task != "run"}
    if offset.get("run") != run:
        raise PipelineError(
            f"{path} has rows of a different run than the query has read so far; start the query with a new checkpoint"
        )
    for task, position in sorted(positions.items()):
        if position > ends.get(task, 0):
            raise PipelineError(
                f"{path} ends at {ends.get(task, 0)} for task {task}, but the query has read up to {position}, "
                "so rows are missing or were withdrawn by a rollback; restore it, or start the query with a new "
                "checkpoint"
            )
    return positions
