"""What a `window` is built from: which stage does it, and what is wrong with it."""

from __future__ import annotations

from causal.errors import PipelineError
from operators.graph import Edge, Node, time_of_inputs, watermarked
from operators.scope import Kind, Scope
from operators.stages import Stage
from operators.windowing.aggregates import Aggregate
from operators.windowing.assigners import Tumbling
from operators.windowing.contents import contents_of
from operators.windowing.panes import PaneStage
from operators.windowing.stage import LATE
from operators.windows import WindowStage


def _stage(node: Node, scope: Scope) -> Stage:
    name, ordinal, failures, groups = node.name, scope.ordinal, scope.failures, scope.config.key_groups
    assigner, subject = node.options["assigner"], node.subject
    if node.vectors:
        from operators.vectors.windows import VectorWindowStage

        return VectorWindowStage(name, ordinal, failures, subject, assigner.size_ns, node.column, groups)
    if not isinstance(subject, Aggregate) and isinstance(assigner, Tumbling) and assigner.clock == "processing":
        return WindowStage(name, ordinal, failures, subject, assigner.size_ns, node.keyed, groups)
    contents = contents_of(subject, name, node.keyed, groups, failures)
    lateness_ns, time_of = node.options["lateness_ns"], time_of_inputs(node)
    return PaneStage(name, ordinal, failures, contents, node.keyed, time_of, lateness_ns, scope.tags, assigner)


def _check(node: Node) -> None:
    assigner = node.options["assigner"]
    if assigner.clock == "event" and (time_of_inputs(node) is None or not all(map(_watermarked, node.edges))):
        without = next((edge for edge in node.edges if edge.time_of is None or not _watermarked(edge)), node.edges[0])
        raise PipelineError(
            f"{node.where}: window {node.name!r} counts event time, but {without.source.name!r} has none; "
            'put .watermarks(name, time) before it, or clock="processing"'
        )


def _watermarked(edge: Edge) -> bool:
    return watermarked(edge.source)


KINDS = {"window": Kind(_stage, keyed="allowed", check=_check, takes="either", asides=(LATE,))}
