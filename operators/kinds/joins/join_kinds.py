"""Construction and checks of join stages."""

from __future__ import annotations

from functools import partial

from causal.errors import PipelineError
from operators.graph import Node, watermarked
from operators.kinds.joins.as_of import AsOfStage
from operators.kinds.joins.interval import IntervalJoinStage
from operators.kinds.joins.rows import RowJoinStage
from operators.kinds.joins.sides import time_of_side
from operators.kinds.joins.window_join import WindowJoinStage
from operators.kinds.windows.assigners import described, shown_seconds
from operators.stage.kind import Kind
from operators.stage.scope import Scope
from operators.stage.stages import Stage


def check_time(node: Node, what: str) -> None:
    """Refuse a join that keeps records by event time if one side has no event time.

    Raises:
        PipelineError: a side has no event time; the message names that side and the fix.
    """
    for edge in node.edges:
        name = edge.source.name
        if not watermarked(edge.source):
            raise PipelineError(
                f"{node.where}: {what}, but {name!r} has no event time; put .watermarks(name, time) before it"
            )
        if edge.time_of is None or time_of_side(node, edge.side) is None:
            raise PipelineError(
                f"{node.where}: {what}, but nothing says where the records of {name!r} have their time; put "
                ".timed(fn) after it"
            )


def _check_interval(node: Node) -> None:
    check_time(node, f"join {node.name!r} keeps records by event time")


def _check_window(node: Node) -> None:
    check_time(node, f"window_join {node.name!r} uses event time")


def _rows(node: Node, scope: Scope) -> Stage:
    return (AsOfStage if node.options["as_of"] else RowJoinStage)(node, scope)


def _check_rows(node: Node) -> None:
    if node.options["as_of"]:
        check_time(node, f"join_table {node.name!r} joins as of the time of each record")


def _meaning(node: Node) -> str:
    """Return a description of the state: the join's options, and its interval or window assigner."""
    parts = [f"how={node.options['how']!r}"]
    if "within_ns" in node.options:
        before_ns, after_ns = node.options["within_ns"]
        parts.append(f"within=({shown_seconds(before_ns)}, {shown_seconds(after_ns)})")
    if "assigner" in node.options:
        parts.append(described(node.options["assigner"]))
    if node.options.get("as_of"):
        parts.append("as_of=True")
    return f"one with {' and '.join(parts)}"


_Join = partial(Kind, keyed="needed", begins=True, asides=("late",), meaning=_meaning)

KINDS = {
    "join": _Join(IntervalJoinStage, check=_check_interval),
    "window_join": _Join(WindowJoinStage, check=_check_window),
    "join_table": _Join(_rows, check=_check_rows),
}
