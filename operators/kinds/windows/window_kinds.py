"""Builds and checks the stage of a `window`."""

from __future__ import annotations

from causal.errors import PipelineError
from operators.graph import ORDERED, Node, time_of_inputs, watermarked
from operators.kinds.windows.aggregates import Aggregate
from operators.kinds.windows.assigners import CountWindow, Global, Session, Sliding, Tumbling
from operators.kinds.windows.clock_panes import ClockPaneStage, ClockSliceStage
from operators.kinds.windows.contents import contents_of
from operators.kinds.windows.counting import CountWindowStage
from operators.kinds.windows.panes import PaneStage
from operators.kinds.windows.sessions import ClockSessionStage, SessionStage
from operators.kinds.windows.slices import SliceStage, sliced
from operators.kinds.windows.task_windows import WindowStage
from operators.kinds.windows.triggered import TriggeredStage
from operators.kinds.windows.triggers import AtEnd, Trigger
from operators.kinds.windows.window_stage import LATE, Windows
from operators.stage.scope import Kind, Scope
from operators.stage.stages import Stage


def _stage(node: Node, scope: Scope) -> Stage:
    name, ordinal, failures, groups = node.name, scope.ordinal, scope.failures, scope.config.key_groups
    assigner, subject = node.options["assigner"], node.subject
    if node.vectors:
        from operators.kinds.windows.vector_windows import VectorWindowStage

        return VectorWindowStage(name, ordinal, failures, subject, assigner.size_ns, node.column, groups)
    if not isinstance(subject, Aggregate) and isinstance(assigner, Tumbling) and assigner.clock == "processing":
        return WindowStage(name, ordinal, failures, subject, assigner.size_ns, node.keyed, groups, assigner.offset_ns)
    lateness_ns, time_of, tags = node.options["lateness_ns"], time_of_inputs(node), scope.tags
    trigger: Trigger | None = node.options["trigger"]
    if isinstance(assigner, CountWindow):
        return CountWindowStage(name, ordinal, failures, subject, node.keyed, groups, assigner)
    contents = contents_of(subject, name, node.keyed, groups, failures)
    if assigner.clock == "processing":
        by_clock = Windows(name, ordinal, failures, contents, node.keyed)
        if isinstance(assigner, Session):
            return ClockSessionStage(by_clock, assigner.gap_ns, groups)
        return (ClockSliceStage if sliced(assigner, subject) else ClockPaneStage)(by_clock, assigner)
    if isinstance(assigner, Global):
        time_of = None
    windows = Windows(name, ordinal, failures, contents, node.keyed, time_of, lateness_ns, tags)
    if isinstance(assigner, Session):
        return SessionStage(windows, assigner.gap_ns, groups)
    if isinstance(assigner, Global) or (trigger is not None and not isinstance(trigger, AtEnd)):
        in_order = time_of_inputs(node) if node.options.get("delivery") == ORDERED else None
        return TriggeredStage(windows, assigner, trigger or AtEnd(), groups, in_order)
    if isinstance(assigner, Sliding) and sliced(assigner, subject):
        return SliceStage(windows, assigner)
    return PaneStage(windows, assigner)


def _check(node: Node) -> None:
    assigner, trigger = node.options["assigner"], node.options["trigger"]
    if isinstance(assigner, (CountWindow, Global)):
        wakes = trigger is not None and type(trigger).wake_at_s is not Trigger.wake_at_s and trigger.clock == "event"
        without = next((edge for edge in node.edges if wakes and not watermarked(edge.source)), None)
    elif assigner.clock == "event":
        without = next((edge for edge in node.edges if edge.time_of is None or not watermarked(edge.source)), None)
        if without is None and time_of_inputs(node) is None:
            raise PipelineError(
                f"{node.where}: window {node.name!r} reads streams whose times come from different functions; "
                "put .timed(fn) behind their union"
            )
    else:
        return
    if without is not None:
        name = without.source.name
        if watermarked(without.source):
            reason = f"it is not known where the time is in what {name!r} gives; put .timed(fn) behind it"
        else:
            reason = f"{name!r} has none; put .watermarks(name, time) before it"
        raise PipelineError(
            f'{node.where}: window {node.name!r} counts event time, but {reason}, or clock="processing"'
        )


KINDS = {"window": Kind(_stage, keyed="allowed", check=_check, takes="either", asides=(LATE,))}
