"""All operator kinds, by the names of their builder methods."""

from __future__ import annotations

from causal.errors import invariant
from operators.graph import ORDERED, SPECULATIVE, Node
from operators.kinds.eventtime import watermarks
from operators.kinds.joins import join_kinds
from operators.kinds.ordering.speculative import SpeculativeStage, check_speculative
from operators.kinds.process import broadcast
from operators.kinds.process.accumulating import CountStage, ReduceStage
from operators.kinds.process.outside_calls import AskStage
from operators.kinds.process.process_stage import ProcessStage
from operators.kinds.tables import table_kinds
from operators.kinds.windows import window_kinds
from operators.source import Source
from operators.stage import state_binding
from operators.stage.disk_state import disk_of
from operators.stage.kind import Kind
from operators.stage.scope import Scope
from operators.stage.stages import FilterStage, FlatMapStage, MapStage, Stage
from operators.stage.unreadable import ReadingStage


def _source(node: Node, scope: Scope) -> Stage:
    source = node.subject
    return (
        ReadingStage(node.name, scope, source.bad_input_remedy) if source.may_be_unreadable else Stage(node.name, scope)
    )


def _sink(node: Node, scope: Scope) -> Stage:
    invariant(False, "a sink has a chain of its own", operator=node.name)
    return Stage(node.name, scope)


# pyarrow is loaded only if a pipeline has vectors.


def _filter(node: Node, scope: Scope) -> Stage:
    if node.vectors:
        from operators.kinds.vectors.vector_stages import VectorFilterStage

        return VectorFilterStage(node, scope)
    return FilterStage(node, scope)


def _count(node: Node, scope: Scope) -> Stage:
    if node.vectors:
        from operators.kinds.vectors.vector_stages import KeyedStage

        return KeyedStage(node, scope)
    return CountStage(node, scope)


def _of_vectors(node: Node, scope: Scope) -> Stage:
    from operators.kinds.vectors import vector_stages

    kinds: dict[str, type[Stage]] = {
        "map_batches": vector_stages.MapBatchesStage,
        "to_rows": vector_stages.ToRowsStage,
        "to_vectors": vector_stages.ToVectorsStage,
    }
    return kinds.get(node.kind, vector_stages.FoldStage)(node, scope)  # type: ignore[arg-type]


def _process(node: Node, scope: Scope) -> Stage:
    if node.options.get("delivery") == SPECULATIVE:
        return SpeculativeStage(node, scope)
    in_order = node.options.get("delivery") == ORDERED
    return ProcessStage(node, scope, scope.time_of(node), disk_of(node, scope.config), in_order)


def _check_process(node: Node) -> None:
    state_binding.check_node(node)
    if node.options.get("delivery") == SPECULATIVE:
        check_speculative(node)


def _delivery(node: Node) -> str:
    speculative = node.options.get("delivery") == SPECULATIVE
    return 'one with delivery="speculative"' if speculative else "one with another delivery"


def _column(node: Node) -> str:
    return f"one of column {node.subject!r}"


def _class_of_source(node: Node) -> str:
    """Return the name of the class in this package on which a source is based; it defines what the positions mean."""
    kinds = [kind for kind in node.subject.defines_positions.__mro__ if kind.__module__.startswith("operators.")]
    return kinds[0].__name__ if kinds[0] is not Source else "source of your own"


KINDS: dict[str, Kind] = {
    "source": Kind(_source, begins=True, takes="either", meaning=_class_of_source),
    "sink": Kind(_sink, begins=True, takes="either"),
    "map": Kind(MapStage),
    "filter": Kind(_filter, takes="either", keeps_time=True),
    "flat_map": Kind(FlatMapStage),
    "map_batches": Kind(_of_vectors, takes="vectors"),
    "to_rows": Kind(_of_vectors, takes="vectors", gives="rows"),
    "to_vectors": Kind(_of_vectors, gives="vectors"),
    "call": Kind(AskStage, keyed="allowed"),
    "process": Kind(_process, keyed="allowed", check=_check_process, asides=None, meaning=_delivery),
    "reduce": Kind(ReduceStage, keyed="needed"),
    "count": Kind(_count, keyed="needed", takes="either"),
    "sum": Kind(_of_vectors, keyed="needed", takes="vectors", meaning=_column),
    "min": Kind(_of_vectors, keyed="needed", takes="vectors", meaning=_column),
    "max": Kind(_of_vectors, keyed="needed", takes="vectors", meaning=_column),
    **watermarks.KINDS,
    **window_kinds.KINDS,
    **join_kinds.KINDS,
    **broadcast.KINDS,
    **table_kinds.KINDS,
}
