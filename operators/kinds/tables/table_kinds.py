"""Builds and checks the stages of tables."""

from __future__ import annotations

from causal.errors import PipelineError, invariant
from operators.graph import Node, time_of_inputs, watermarked
from operators.kinds.tables.revisions import DeriveStage, GroupStage, LatestStage, ToStreamStage, kept
from operators.kinds.tables.suppressing import SuppressStage
from operators.kinds.tables.table_aggregates import AggregateGroupsStage, AggregateTableStage
from operators.kinds.tables.table_join import TableJoinStage
from operators.kinds.tables.windowed import WindowTableStage
from operators.stage.scope import Kind, Scope
from operators.stage.stages import Stage


def _latest(node: Node, scope: Scope) -> Stage:
    return LatestStage(node.name, scope.ordinal, scope.failures, scope.config.key_groups)


def _aggregate(node: Node, scope: Scope) -> Stage:
    return AggregateTableStage(node.name, scope.ordinal, scope.failures, node.subject, scope.config.key_groups)


def _groups(node: Node, scope: Scope) -> Stage:
    return AggregateGroupsStage(node.name, scope.ordinal, scope.failures, node.subject, scope.config.key_groups)


def _windowed(node: Node, scope: Scope) -> Stage:
    time_of = time_of_inputs(node)
    invariant(time_of is not None, "a windowed table is checked before it is built", operator=node.name)
    return WindowTableStage(
        node.name,
        scope.ordinal,
        scope.failures,
        node.options["assigner"],
        node.subject,
        node.options["grace_ns"],
        time_of,  # type: ignore[arg-type]
        all(watermarked(edge.source) for edge in node.edges),
        scope.config.key_groups,
        scope.tags,
    )


def _check_windowed(node: Node) -> None:
    if time_of_inputs(node) is None:
        name = next((edge.source.name for edge in node.edges if edge.time_of is None), node.edges[0].source.name)
        raise PipelineError(
            f"{node.where}: window_table {node.name!r} counts event time, but it is not known where the time is in "
            f"what {name!r} gives; put .timed(fn) or .watermarks(name, time) behind it"
        )


def _filter(node: Node, scope: Scope) -> Stage:
    return DeriveStage(node.name, scope.ordinal, scope.failures, kept(node.subject))


def _map_values(node: Node, scope: Scope) -> Stage:
    return DeriveStage(node.name, scope.ordinal, scope.failures, node.subject)


def _group_by(node: Node, scope: Scope) -> Stage:
    return GroupStage(node.name, scope.ordinal, scope.failures, node.subject)


def _join(node: Node, scope: Scope) -> Stage:
    how, groups = node.options["how"], scope.config.key_groups
    return TableJoinStage(node.name, scope.ordinal, scope.failures, node.subject, how, groups)


def _suppress(node: Node, scope: Scope) -> Stage:
    options, groups = node.options, scope.config.key_groups
    return SuppressStage(node.name, scope.ordinal, scope.failures, options["after_ns"], options["keys_max"], groups)


def _check_suppress(node: Node) -> None:
    if node.options["after_ns"] is not None:
        for edge in node.edges:
            if not watermarked(edge.source) and not node.options["windowed"]:
                raise PipelineError(
                    f"{node.where}: suppress {node.name!r} counts event time, but {edge.source.name!r} has none; put "
                    ".watermarks(name, time) before the table"
                )


def _revisions(node: Node, scope: Scope) -> Stage:
    return Stage(node.name, scope.ordinal, scope.failures)


def _to_stream(node: Node, scope: Scope) -> Stage:
    return ToStreamStage(node.name, scope.ordinal, scope.failures, node.subject)


KINDS = {
    "table": Kind(_latest, keyed="needed"),
    "aggregate_table": Kind(_aggregate, keyed="needed"),
    "window_table": Kind(_windowed, keyed="needed", check=_check_windowed, asides=("late",)),
    "table_filter": Kind(_filter, keeps_time=True),
    "map_values": Kind(_map_values, keeps_time=True),
    "group_by": Kind(_group_by),
    "aggregate": Kind(_groups, keyed="needed"),
    "table_join": Kind(_join, keyed="needed", begins=True),
    "suppress": Kind(_suppress, keyed="needed", check=_check_suppress, keeps_time=True),
    "revisions": Kind(_revisions, keeps_time=True),
    "to_stream": Kind(_to_stream),
}
