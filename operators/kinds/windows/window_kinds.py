"""Construction and checks of `window` stages."""

from __future__ import annotations

from collections.abc import Callable

from causal.errors import PipelineError
from operators.graph import Node, time_of_inputs, watermarked
from operators.kinds.windows.aggregates import Aggregate, Count, shown_aggregate
from operators.kinds.windows.assigners import CountWindow, Global, Session, Tumbling, described
from operators.kinds.windows.clock_panes import ClockPaneStage, ClockSliceStage
from operators.kinds.windows.counting import CountWindowStage
from operators.kinds.windows.panes import PaneStage
from operators.kinds.windows.sessions import ClockSessionStage, SessionStage
from operators.kinds.windows.slices import SliceStage, sliced
from operators.kinds.windows.task_windows import WindowStage
from operators.kinds.windows.triggered import TriggeredStage
from operators.kinds.windows.triggers import AtEnd, Trigger
from operators.kinds.windows.window_stage import LATE
from operators.stage.kind import Kind
from operators.stage.scope import Scope
from operators.stage.stages import Stage


def _stage(node: Node, scope: Scope) -> Stage:
    return _kind(node)(node, scope)


def _kind(node: Node) -> Callable[[Node, Scope], Stage]:
    """Return the class of a window's stage."""
    assigner, subject, trigger = node.options["assigner"], node.subject, node.options["trigger"]
    if node.vectors:
        from operators.kinds.windows.vector_windows import VectorWindowStage

        return VectorWindowStage
    if isinstance(assigner, CountWindow):
        return CountWindowStage
    by_clock = assigner.clock == "processing"
    if by_clock and isinstance(assigner, Tumbling) and not isinstance(subject, Aggregate):
        return WindowStage
    if isinstance(assigner, Session):
        return ClockSessionStage if by_clock else SessionStage
    if isinstance(assigner, Global) or (trigger is not None and not isinstance(trigger, AtEnd)):
        return TriggeredStage
    if sliced(assigner, subject):
        return ClockSliceStage if by_clock else SliceStage
    return ClockPaneStage if by_clock else PaneStage


def _counts(node: Node) -> bool:
    """Return whether a window only counts its records, so that its output does not depend on when they arrive."""
    assigner, subject, trigger = node.options["assigner"], node.subject, node.options["trigger"]
    at_end = trigger is None or type(trigger) is AtEnd
    plain = not node.vectors and node.options.get("delivery") is None
    return isinstance(assigner, Global) and type(subject) is Count and at_end and plain


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
                "put .timed(fn) after their union"
            )
    else:
        return
    if without is not None:
        name = without.source.name
        if watermarked(without.source):
            reason = f"nothing says where the records of {name!r} have their time; put .timed(fn) after it"
        else:
            reason = f"{name!r} has none; put .watermarks(name, time) before it"
        raise PipelineError(f'{node.where}: window {node.name!r} uses event time, but {reason}, or clock="processing"')


def meaning(node: Node) -> str:
    """Return a description of the windows and their contents."""
    subject, assigner, trigger = node.subject, node.options["assigner"], node.options.get("trigger")
    contents = shown_aggregate(subject) if isinstance(subject, Aggregate) else "records"
    if node.vectors:
        contents = "vectors"
    in_slices = node.kind == "window" and sliced(assigner, subject) and (trigger is None or type(trigger) is AtEnd)
    return f"{described(assigner)} of {contents}{' in slices' * in_slices}{'' if node.keyed else ' without a key'}"


KINDS = {
    "window": Kind(
        _stage, keyed="allowed", check=_check, takes="either", asides=(LATE,), counts_suffice=_counts, meaning=meaning
    )
}
