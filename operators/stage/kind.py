"""The kinds of operators: how a stage is built, and what it reads and emits (`operators.kinds.registry` lists all)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from operators.graph import Node
from operators.stage.scope import Scope
from operators.stage.stages import Stage


def nothing(node: Node) -> None:
    """Check nothing, for a kind whose nodes need no further checks."""


def never(node: Node) -> bool:
    """Return False, for a kind that needs the records themselves."""
    return False


def same(node: Node) -> str:
    """Return "", for a kind whose state always has the same meaning."""
    return ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of operator, which corresponds to one builder method.

    Attributes:
        stage: a function that creates the operator's stage for one task.
        keyed: whether the operator requires a preceding key_by, allows it, or never allows it.
        begins: whether the operator always begins a new task, regardless of its input.
        check: a function that raises PipelineError for a node that cannot run.
        takes: the form of the operator's input records.
        gives: the form of its output records; None if they have the same form as its input records.
        keeps_time: whether its output has event times if its input has them.
        counts_suffice: whether the operator's stage only counts records by key and may therefore receive `Counted`
            keys.
        asides: the tags of its side outputs; None if user code chooses them.
        meaning: a function that returns, as text for errors, the meaning of the state beyond its kind, such as its
            windows.
    """

    stage: Callable[[Node, Scope], Stage]
    keyed: Literal["needed", "allowed", "never"] = "never"
    begins: bool = False
    check: Callable[[Node], None] = nothing
    takes: Literal["rows", "vectors", "either"] = "rows"
    gives: Literal["rows", "vectors"] | None = None
    keeps_time: bool = False
    counts_suffice: Callable[[Node], bool] = never
    asides: tuple[str, ...] | None = ()
    meaning: Callable[[Node], str] = same
