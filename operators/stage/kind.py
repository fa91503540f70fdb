"""The kind of an operator: how its stage is built and what it works on; `operators.kinds.registry` lists all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from operators.graph import Node
from operators.stage.scope import Scope
from operators.stage.stages import Stage


def nothing(node: Node) -> None:
    """Check nothing, for a kind of which nothing more can be wrong."""


def never(node: Node) -> bool:
    """Return False, for a kind that looks at its records."""
    return False


def same(node: Node) -> str:
    """Return "", for a kind whose state means the same wherever it is of that kind."""
    return ""


@dataclass(frozen=True, slots=True)
class Kind:
    """One method of the builder that makes an operator.

    Attributes:
        stage: creates its stage for one task.
        keyed: whether it works only after key_by, there as well, or never there.
        begins: whether it is a task of its own, whatever feeds it.
        check: refuses a node that cannot run, with a PipelineError.
        takes: the form of its input records.
        gives: the form of its output; None: that of its input.
        keeps_time: whether its output has event time where its input has it.
        counts_suffice: whether its stage only counts its records by key, so that their keys may come as `Counted`.
        asides: tags of its side outputs; None: whatever the user's code calls them.
        meaning: returns, as errors show it, what its state means beyond its kind: which windows it is of, for example.
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
