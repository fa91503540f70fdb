"""The likely cause of a divergence, from performances that differ in one respect each (0064).

Nothing here performs anything. What a performance has observed outranks what the source text suggests.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operators.replay.difference import Difference
from operators.replay.user_trace import CLOCK, ENVIRONMENT, FILE, NETWORK, ORDER, PROCESS, RANDOM, Question

KEPT, VERSION, UNKNOWN = "kept", "version", "unknown"

REMEDIES = {
    KEPT: "keep it in ctx.state",
    CLOCK: "use ctx.now(), which is recorded",
    RANDOM: "use ctx.random or ctx.uuid(), which are the same in a replay",
    ORDER: "sort it, and use no id() or hash() of objects: sets have another order in each process",
    ENVIRONMENT: "read it where the pipeline is built, from pipeline.settings",
    FILE: "read it with ctx.call, or as a source",
    NETWORK: "ask with ctx.call, whose answer is recorded",
    PROCESS: "run it in a function for ctx.call, whose answer is recorded",
    VERSION: "replay with the versions of the recording",
    UNKNOWN: "use ctx for the clock, chance and calls, and ctx.state for what is remembered; threads are not recorded",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """A likely cause.

    Attributes:
        kind: `kept`, `clock`, `random`, `order`, `environment`, `file`, `network`, `process`, `version`, `unknown`.
        what: a phrase that names it.
        file, line, function: the line of user code; empty if it is not known.
    """

    kind: str
    what: str
    file: str = ""
    line: int = 0
    function: str = ""

    @property
    def remedy(self) -> str:
        return REMEDIES[self.kind]


def cause_of(
    difference: Difference | None,
    asked: Sequence[Question],
    changed: Sequence[Sequence[str]],
    *,
    fresh: bool,
    hashes: bool,
    versions: Sequence[str] = (),
) -> Cause:
    """Return the likely cause of a divergence.

    Args:
        difference: the first difference of two performances; None if there is none.
        asked: the questions of the task's user code in the epoch, in order.
        changed: (phrase, remedy) of each place outside of checkpoints that has changed.
        fresh: whether a performance from the beginning is like the recording, and one in a fresh process is not.
        hashes: whether performances with another hash seed differ.
        versions: phrases about versions of code that is not archived and differs now.
    """
    if difference is not None:
        here = [each for each in asked if (each.file, each.line) == (difference.file, difference.line)]
        if not difference.kept and here and not fresh:
            return _asked(_first(here))
        if difference.kept or fresh:
            return _kept(difference, changed)
        if hashes or _uses_a_set(difference):
            what = "the order of a set" if not hashes else "the order of a set, which follows from the hash seed"
            return Cause(ORDER, what, difference.file, difference.line, difference.function)
        same_function = [each for each in asked if (each.file, each.function) == (difference.file, difference.function)]
        if same_function:
            return _asked(_first(same_function))
    if versions:
        return Cause(VERSION, "; ".join(versions))
    if fresh and changed:
        return Cause(KEPT, changed[0][0])
    outside = [each for each in asked if each.kind != ORDER]
    if outside:
        return _asked(_first(outside))
    if difference is None:
        return Cause(UNKNOWN, "nothing that was varied makes a difference")
    return Cause(UNKNOWN, "no cause was observed", difference.file, difference.line, difference.function)


RANK = (ENVIRONMENT, FILE, NETWORK, PROCESS, RANDOM, CLOCK, ORDER)


def _first(questions: Sequence[Question]) -> Question:
    return min(questions, key=lambda each: RANK.index(each.kind))


def _asked(question: Question) -> Cause:
    detail = f" ({question.detail})" if question.detail else ""
    what = {
        CLOCK: f"{question.name}() is not recorded",
        RANDOM: f"{question.name}() is not recorded",
        ORDER: f"{question.name}() of an object differs between processes",
        ENVIRONMENT: f"the variable {question.detail} of os.environ is read",
        FILE: f"a file is read{detail}",
        NETWORK: f"the network is used{detail}",
        PROCESS: f"another program is run{detail}",
    }[question.kind]
    return Cause(question.kind, what, question.file, question.line, question.function)


def _kept(difference: Difference, changed: Sequence[Sequence[str]]) -> Cause:
    """Return the place that has changed, as the witness names it, or else by the name of the variable."""
    name = difference.name.rpartition(".")[2].rpartition(" ")[2]
    places = [what for what, _ in changed if f"`{name}`" in what] if name else []
    if not places and len(changed) == 1:
        places = [changed[0][0]]
    what = places[0] if places else f"`{difference.name or 'something'}` is kept outside of ctx.state"
    return Cause(KEPT, what, difference.file, difference.line, difference.function)


def _uses_a_set(difference: Difference) -> bool:
    """Return whether the statement of a line uses a set, id() or hash(), by its variables or by its text."""
    if difference.ordered:
        return True
    try:
        tree = ast.parse(Path(difference.file).read_text())
    except (OSError, SyntaxError, ValueError):
        return False
    statements = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
        and node.lineno <= difference.line <= (node.end_lineno or node.lineno)
        and not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef))
    ]
    return any(_makes_a_set(node) for statement in statements for node in ast.walk(statement))


def _makes_a_set(node: ast.AST) -> bool:
    if isinstance(node, (ast.Set, ast.SetComp)):
        return True
    names = ("set", "frozenset", "id", "hash")
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def questions_of(asked: Sequence[Sequence[Any]]) -> list[Question]:
    """Return the questions of a result, without their counts."""
    return [Question(*each[:-1]) for each in asked]
