"""Builds and checks the stages of joins."""

from __future__ import annotations

from causal.errors import PipelineError, invariant
from operators.graph import LEFT, RIGHT, Node, watermarked
from operators.kinds.joins.as_of import AsOfStage
from operators.kinds.joins.interval import IntervalJoinStage
from operators.kinds.joins.rows import RowJoinStage
from operators.kinds.joins.sides import inputs_of_side, time_of_side
from operators.kinds.joins.waiting import Waiting
from operators.kinds.joins.window_join import WindowJoinStage
from operators.stage.scope import Kind, Scope
from operators.stage.stages import Stage


def _interval(node: Node, scope: Scope) -> Stage:
    left, right = time_of_side(node, LEFT), time_of_side(node, RIGHT)
    invariant(left is not None and right is not None, "a join is checked before it is built", operator=node.name)
    return IntervalJoinStage(
        node.name,
        scope.ordinal,
        scope.failures,
        node.subject,
        node.options["how"],
        node.options["within_ns"],
        (left, right),  # type: ignore[arg-type]
        scope.config.key_groups,
        scope.numbers,
        scope.tags,
    )


def check_time(node: Node, what: str) -> None:
    """Refuses a join that keeps records by event time where one side has none.

    Raises:
        PipelineError: a side has no event time; the message says which, and the fix.
    """
    for edge in node.edges:
        name = edge.source.name
        if not watermarked(edge.source):
            raise PipelineError(f"{node.where}: {what}, but {name!r} has none; put .watermarks(name, time) before it")
        if edge.time_of is None or time_of_side(node, edge.side) is None:
            raise PipelineError(
                f"{node.where}: {what}, but it is not known where the time is in what {name!r} gives; put .timed(fn) "
                "behind it"
            )


def _check_interval(node: Node) -> None:
    check_time(node, f"join {node.name!r} keeps records by event time")


def _window(node: Node, scope: Scope) -> Stage:
    left, right = time_of_side(node, LEFT), time_of_side(node, RIGHT)
    invariant(left is not None and right is not None, "a join is checked before it is built", operator=node.name)
    return WindowJoinStage(
        node.name,
        scope.ordinal,
        scope.failures,
        node.subject,
        node.options["how"],
        node.options["assigner"],
        (left, right),  # type: ignore[arg-type]
        scope.config.key_groups,
        scope.tags,
    )


def _check_window(node: Node) -> None:
    check_time(node, f"window_join {node.name!r} counts event time")


def _rows(node: Node, scope: Scope) -> Stage:
    name, groups = node.name, scope.config.key_groups
    if node.options["as_of"]:
        left, right = time_of_side(node, LEFT), time_of_side(node, RIGHT)
        invariant(left is not None and right is not None, "a join is checked before it is built", operator=name)
        return AsOfStage(
            name,
            scope.ordinal,
            scope.failures,
            node.subject,
            node.options["how"],
            (left, right),  # type: ignore[arg-type]
            node.options["derivations"],
            groups,
            scope.arrival,
            scope.tags,
        )
    waiting = None
    if node.options["wait"]:
        awaited = inputs_of_side(node, RIGHT, scope.task, scope.inputs)
        waiting = Waiting(f"{name}:held", name, groups, awaited, scope.numbers)
    time_of = time_of_side(node, LEFT)
    how = node.options["how"]
    return RowJoinStage(name, scope.ordinal, scope.failures, node.subject, how, time_of, waiting, groups)


def _check_rows(node: Node) -> None:
    if node.options["as_of"]:
        check_time(node, f"join_table {node.name!r} joins as of the time of each record")


KINDS = {
    "join": Kind(_interval, keyed="needed", begins=True, check=_check_interval, asides=("late",)),
    "window_join": Kind(_window, keyed="needed", begins=True, check=_check_window, asides=("late",)),
    "join_table": Kind(_rows, keyed="needed", begins=True, check=_check_rows, asides=("late",)),
}
