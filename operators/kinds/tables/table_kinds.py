"""Construction and checks of table stages."""

from __future__ import annotations

from causal.errors import PipelineError
from operators.graph import Node, time_of_inputs, watermarked
from operators.kinds.tables.latest import LatestStage
from operators.kinds.tables.revisions import DeriveStage, GroupStage, RevisionsStage, ToStreamStage
from operators.kinds.tables.session_rows import SessionTableStage
from operators.kinds.tables.suppressing import ClockSuppressStage, SuppressStage
from operators.kinds.tables.table_aggregates import AggregateGroupsStage, AggregateTableStage
from operators.kinds.tables.table_join import TableJoinStage
from operators.kinds.tables.windowed import WindowTableStage
from operators.kinds.windows import window_kinds
from operators.kinds.windows.aggregates import shown_aggregate
from operators.kinds.windows.assigners import Session
from operators.stage.kind import Kind
from operators.stage.scope import Scope
from operators.stage.stages import Stage


def _check_windowed(node: Node) -> None:
    if time_of_inputs(node) is None:
        name = next((edge.source.name for edge in node.edges if edge.time_of is None), node.edges[0].source.name)
        raise PipelineError(
            f"{node.where}: window_table {node.name!r} uses event time, but nothing says where the records of "
            f"{name!r} have their time; put .timed(fn) or .watermarks(name, time) after it"
        )


def _check_suppress(node: Node) -> None:
    if node.options["after_ns"] is not None and node.options["clock"] == "event":
        for edge in node.edges:
            if not watermarked(edge.source) and not node.options["windowed"]:
                raise PipelineError(
                    f"{node.where}: suppress {node.name!r} uses event time, but {edge.source.name!r} has none; "
                    'put .watermarks(name, time) before the table, or use clock="processing"'
                )


def _windowed(node: Node, scope: Scope) -> Stage:
    kind = SessionTableStage if isinstance(node.options["assigner"], Session) else WindowTableStage
    return kind(node, scope)


def _suppress(node: Node, scope: Scope) -> Stage:
    kind = ClockSuppressStage if node.options["clock"] == "processing" else SuppressStage
    return kind(node, scope)


def _aggregate(node: Node) -> str:
    return shown_aggregate(node.subject)


def _of_windows(node: Node) -> str:
    by_clock = " by the wall clock" * (node.options["clock"] == "processing")
    return f"one of {'windows' if node.options['windowed'] else 'rows'}{by_clock}"


def _how(node: Node) -> str:
    return f"one with how={node.options['how']!r}"


KINDS = {
    "table": Kind(LatestStage, keyed="needed"),
    "aggregate_table": Kind(AggregateTableStage, keyed="needed", meaning=_aggregate),
    "window_table": Kind(
        _windowed, keyed="needed", check=_check_windowed, asides=("late",), meaning=window_kinds.meaning
    ),
    "table_filter": Kind(DeriveStage, keeps_time=True),
    "map_values": Kind(DeriveStage, keeps_time=True),
    "group_by": Kind(GroupStage),
    "aggregate": Kind(AggregateGroupsStage, keyed="needed", meaning=_aggregate),
    "table_join": Kind(TableJoinStage, keyed="needed", begins=True, meaning=_how),
    "suppress": Kind(_suppress, keyed="needed", check=_check_suppress, keeps_time=True, meaning=_of_windows),
    "revisions": Kind(RevisionsStage, keeps_time=True),
    "to_stream": Kind(ToStreamStage),
}
