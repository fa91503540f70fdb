"""All kinds of operators, by the name of the method of the builder."""

from __future__ import annotations

import copy

from causal.errors import invariant
from operators.graph import ORDERED, SPECULATIVE, Node
from operators.kinds.eventtime import eventtime_kinds
from operators.kinds.joins import join_kinds
from operators.kinds.ordering.speculative import SpeculativeStage, check_speculative
from operators.kinds.process import broadcast
from operators.kinds.process.accumulating import CountStage, ReduceStage
from operators.kinds.process.outside_calls import AskStage
from operators.kinds.tables import table_kinds
from operators.kinds.windows import window_kinds
from operators.stage import state_binding
from operators.stage.disk_state import disk_of
from operators.stage.processing import ProcessStage
from operators.stage.scope import Kind, Scope
from operators.stage.stages import FilterStage, FlatMapStage, MapStage, Stage


def _source(node: Node, scope: Scope) -> Stage:
    return Stage(node.name, scope.ordinal, scope.failures)


def _sink(node: Node, scope: Scope) -> Stage:
    invariant(False, "a sink has a chain of its own", operator=node.name)
    return Stage(node.name, scope.ordinal, scope.failures)


def _map(node: Node, scope: Scope) -> Stage:
    return MapStage(node.name, scope.ordinal, scope.failures, node.subject)


def _filter(node: Node, scope: Scope) -> Stage:
    if node.vectors:
        from operators.kinds.vectors.vector_stages import VectorFilterStage

        return VectorFilterStage(node.name, scope.ordinal, scope.failures, node.subject)
    return FilterStage(node.name, scope.ordinal, scope.failures, node.subject)


def _flat_map(node: Node, scope: Scope) -> Stage:
    return FlatMapStage(node.name, scope.ordinal, scope.failures, node.subject)


def _map_batches(node: Node, scope: Scope) -> Stage:
    from operators.kinds.vectors.vector_stages import MapBatchesStage

    return MapBatchesStage(node.name, scope.ordinal, scope.failures, node.subject)


def _to_rows(node: Node, scope: Scope) -> Stage:
    from operators.kinds.vectors.vector_stages import ToRowsStage

    return ToRowsStage(node.name, scope.ordinal, scope.failures)


def _to_vectors(node: Node, scope: Scope) -> Stage:
    from operators.kinds.vectors.vector_stages import ToVectorsStage

    return ToVectorsStage(node.name, scope.ordinal, scope.failures, node.subject)


def _process(node: Node, scope: Scope) -> Stage:
    # Each task has an instance of its own, as if it were alone in its process.
    if node.options.get("delivery") == SPECULATIVE:
        return SpeculativeStage(node, scope, copy.copy(node.subject))
    return ProcessStage(
        node.name,
        scope.ordinal,
        scope.failures,
        copy.copy(node.subject),
        scope.task,
        node.keyed,
        scope.config.key_groups,
        scope.numbers,
        scope.time_of(node),
        scope.tags,
        disk_of(node, scope.config),
        in_order=node.options.get("delivery") == ORDERED,
    )


def _check_process(node: Node) -> None:
    state_binding.check_node(node)
    if node.options.get("delivery") == SPECULATIVE:
        check_speculative(node)


def _count(node: Node, scope: Scope) -> Stage:
    if node.vectors:
        from operators.kinds.vectors.vector_stages import KeyedStage

        return KeyedStage(node.name, scope.ordinal, scope.failures, node.column or "", scope.config.key_groups)
    return CountStage(node.name, scope.ordinal, scope.failures, scope.config.key_groups)


def _reduce(node: Node, scope: Scope) -> Stage:
    initial, groups = node.options["initial"], scope.config.key_groups
    return ReduceStage(node.name, scope.ordinal, scope.failures, node.subject, initial, groups)


def _fold(node: Node, scope: Scope) -> Stage:
    from operators.kinds.vectors.vector_stages import FoldStage

    name, key, groups = node.name, node.column or "", scope.config.key_groups
    return FoldStage(name, scope.ordinal, scope.failures, node.kind, node.subject, key, groups)


def _call(node: Node, scope: Scope) -> Stage:
    return AskStage(node, scope)


KINDS: dict[str, Kind] = {
    "source": Kind(_source, begins=True, takes="either"),
    "sink": Kind(_sink, begins=True, takes="either"),
    "map": Kind(_map),
    "filter": Kind(_filter, takes="either", keeps_time=True),
    "flat_map": Kind(_flat_map),
    "map_batches": Kind(_map_batches, takes="vectors"),
    "to_rows": Kind(_to_rows, takes="vectors", gives="rows"),
    "to_vectors": Kind(_to_vectors, gives="vectors"),
    "call": Kind(_call, keyed="allowed"),
    "process": Kind(_process, keyed="allowed", check=_check_process, asides=None),
    "reduce": Kind(_reduce, keyed="needed"),
    "count": Kind(_count, keyed="needed", takes="either"),
    "sum": Kind(_fold, keyed="needed", takes="vectors"),
    "min": Kind(_fold, keyed="needed", takes="vectors"),
    "max": Kind(_fold, keyed="needed", takes="vectors"),
    **eventtime_kinds.KINDS,
    **window_kinds.KINDS,
    **join_kinds.KINDS,
    **broadcast.KINDS,
    **table_kinds.KINDS,
}
