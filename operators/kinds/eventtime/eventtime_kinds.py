"""Builds and checks the stage of `watermarks`."""

from __future__ import annotations

from causal.errors import PipelineError
from operators.graph import Node, watermarks_before
from operators.kinds.eventtime.watermarks import WatermarkStage
from operators.stage.kind import Kind


def _one_per_stream(node: Node) -> None:
    for edge in node.edges:
        before = watermarks_before(edge.source)
        if before is not None:
            raise PipelineError(
                f"{node.where}: watermarks {node.name!r} follows another ({before.name!r}, {before.where}); "
                "one per stream, use .timed(fn) to say where the time is in new records"
            )


KINDS = {"watermarks": Kind(WatermarkStage, check=_one_per_stream)}
