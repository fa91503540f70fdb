"""The pipeline as a graph of named operators, and the checks of that graph.

The nodes are the operators that the user named. `key_by` and `union` are not nodes but properties of edges.
"""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import attrgetter
from pathlib import Path
from typing import Any

from causal.errors import PipelineError
from operators.functions import place_of
from operators.tracebacks import of_a_user

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
NAME_CHARACTERS_MAX = 120
"""The maximum length of names: file names contain task names and more, and file systems allow 255 bytes."""
_HERE = str(Path(__file__).parent) + "/"

ARRIVAL, ORDERED, SPECULATIVE = DELIVERIES = ("arrival", "ordered", "speculative")
"""The values of `delivery=`: in order of arrival, by event time, and in order of arrival with revisions."""

LEFT, RIGHT = 0, 1
"""The two inputs of an operator that distinguishes its inputs."""

_ordinal = attrgetter("ordinal")


@dataclass(frozen=True, slots=True)
class ByColumn:
    """The key function of `key_by("column")` on a stream of vectors."""

    column: str

    def __call__(self, record: Any) -> Any:
        """Return the key of one row, which is a dict."""
        return record[self.column]


@dataclass(frozen=True, slots=True)
class Edge:
    """An input of an operator: the records of `source`, routed by key if `key_of` is set.

    Attributes:
        time_of: returns the event time of these records; None if it is unknown.
        side: the index of the operator's input, for operators that distinguish their inputs.
        broadcast: whether every task of the reading operator receives all records.
        tag: the side output that is read; "" for the main output.
    """

    source: Node
    key_of: Callable[[Any], Any] | None = None
    time_of: Callable[[Any], Any] | None = None
    side: int = 0
    broadcast: bool = False
    tag: str = ""


@dataclass(eq=False, slots=True)
class Node:
    """One named operator.

    Attributes:
        kind: the builder method that created the operator: source, map, filter, process, count, sink …
        subject: the Source, Sink, Operator or function.
        options: the other arguments of the method.
        where: file:line of the call that created the operator.
        ordinal: the index of the operator in the order of declaration.
        vectors: whether the operator emits vectors.
        table: whether the operator emits revisions of a table.
        time_of: returns the event time of the operator's output; None if it is unknown.
    """

    name: str
    kind: str
    subject: Any
    parallelism: int
    where: str
    ordinal: int
    edges: list[Edge] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    vectors: bool = False
    table: bool = False
    time_of: Callable[[Any], Any] | None = None

    @property
    def reads_vectors(self) -> bool:
        """Whether the operator reads vectors."""
        return any(edge.source.vectors for edge in self.edges)

    @property
    def column(self) -> str | None:
        """The key column of the vectors that the operator reads; None without key_by."""
        key_of = self.edges[0].key_of if self.edges else None
        return key_of.column if isinstance(key_of, ByColumn) else None

    @property
    def columns_wanted(self) -> tuple[str, ...] | None:
        """The columns that the operator uses of the keyed vectors it reads; None if it may use any column."""
        if self.column is None or self.kind not in ("count", "sum", "min", "max"):
            return None
        return tuple(dict.fromkeys((self.column, self.column if self.kind == "count" else self.subject)))

    @property
    def keyed(self) -> bool:
        return any(edge.key_of is not None for edge in self.edges)


def time_of_inputs(node: Node) -> Callable[[Any], Any] | None:
    """Return the event-time function that all inputs share, or None if they have different functions."""
    functions = {edge.time_of for edge in node.edges}
    return node.edges[0].time_of if len(functions) == 1 else None


def ancestors(node: Node) -> list[Node]:
    """Return `node` followed by all nodes that it reads from, directly or indirectly, without duplicates."""
    nodes = {node.ordinal: node}
    waiting = [node]
    while waiting:
        for edge in waiting.pop().edges:
            if edge.source.ordinal not in nodes:
                nodes[edge.source.ordinal] = edge.source
                waiting.append(edge.source)
    return list(nodes.values())


def before_by_side(node: Node) -> list[dict[str, list[str]]]:
    """Return what precedes only one of two inputs, per side (see `Stage.before`); [] for an operator with one input.

    This includes operators, and those outputs ("name:tag") of operators preceding both inputs that only one side reads.
    """
    if not any(edge.side == RIGHT for edge in node.edges):
        return []
    read = [[edge for edge in node.edges if edge.side == side] for side in (LEFT, RIGHT)]
    before = [{each for edge in edges for each in ancestors(edge.source)} for edges in read]
    both = before[LEFT] & before[RIGHT]
    names: list[dict[str, list[str]]] = []
    outputs: list[set[str]] = []
    for edges, nodes in zip(read, before, strict=True):
        own = nodes - both
        names.append(
            {
                each.name: sorted(other.name for other in own.intersection(ancestors(each)) if not other.edges)
                for each in sorted(own, key=_ordinal)
            }
        )
        passed = edges + [edge for each in nodes for edge in each.edges]
        outputs.append({f"{edge.source.name}:{edge.tag}" for edge in passed if edge.source in both})
    for side in (LEFT, RIGHT):
        names[side].update((output, []) for output in sorted(outputs[side] - outputs[1 - side]))
    return names


_PASSING = frozenset(("filter", "watermarks", "timed"))
"""The kinds of operators whose output records are their input records."""


def givers(nodes: Sequence[Node]) -> dict[str, str]:
    """Map each operator, and each `key_by before <operator>`, to kind, name and file:line of its records' origin."""
    origins: dict[str, str] = {}
    for node in nodes:
        sources = {edge.source.ordinal: edge.source for edge in node.edges}
        while any(source.kind in _PASSING for source in sources.values()):
            passing = next(source for source in sources.values() if source.kind in _PASSING)
            del sources[passing.ordinal]
            sources.update({edge.source.ordinal: edge.source for edge in passing.edges})
        text = " or ".join(f"{source.kind} {source.name!r} ({source.where})" for source in sources.values())
        if text:
            origins[node.name] = origins[f"key_by before {node.name}"] = text
    return origins


def places(nodes: Sequence[Node]) -> dict[str, str]:
    """Map each operator, and each `key_by before <operator>`, to the file:line of the user code that it runs.

    If that code is not the user's, map the operator to the location of the builder call.
    """
    places: dict[str, str] = {}
    for node in nodes:
        key_of = next((edge.key_of for edge in node.edges if edge.key_of is not None), None)
        defined_at = getattr(node.subject, "defined_at", "") or place_of(getattr(node.subject, "process", node.subject))
        for name, place in ((node.name, defined_at), (f"key_by before {node.name}", place_of(key_of))):
            places[name] = place if place and of_a_user(place) else node.where
    return places


def watermarks_before(node: Node) -> Node | None:
    """Return an operator whose watermarks reach `node`, which may be `node` itself; None if there is none."""
    return next((other for other in ancestors(node) if other.kind == "watermarks"), None)


def watermarked(node: Node) -> bool:
    """Return whether every path to the output of `node` passes through a `watermarks` operator."""
    waiting, seen = [node], {node.ordinal: None}
    while waiting:
        other = waiting.pop()
        if other.kind == "watermarks":
            continue
        if not other.edges:
            return False
        for edge in other.edges:
            if edge.source.ordinal not in seen:
                seen[edge.source.ordinal] = None
                waiting.append(edge.source)
    return True


def check_event_time(node: Node, what: str, otherwise: str = "", side: int | None = None) -> None:
    """Refuse an operator that uses event time if one of its inputs has no event time.

    Args:
        what: the beginning of the message, for example "window 'w' uses event time".
        otherwise: an alternative fix that is added to the message.
        side: the side whose inputs are checked; None for all inputs.

    Raises:
        PipelineError: the records of an input have no event time, or the input has no watermarks.
    """
    otherwise = otherwise and f", {otherwise}"
    for edge in node.edges:
        if side is not None and edge.side != side:
            continue
        if not watermarked(edge.source):
            fix = f"put .watermarks(name, time) before it{otherwise}"
            raise PipelineError(f"{node.where}: {what}, but {edge.source.name!r} has none; {fix}")
        if edge.time_of is None:
            fix = f"put .timed(fn) after {edge.source.name!r}{otherwise}"
            reason = f"nothing says where the records of {edge.source.name!r} have their time"
            raise PipelineError(f"{node.where}: {what}, but {reason}; {fix}")


def caller() -> str:
    """Return file:line of the nearest caller outside this package and outside `typing`, which calls `Sum[int](…)`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_HERE, typing.__file__)):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def check_name(name: object, what: str, where: str) -> str:
    """Return `name` if it can be part of a task name and a path.

    Raises:
        PipelineError: the name cannot be used.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not name.strip("."):
        raise PipelineError(f"{where}: {name!r} cannot name {what}; use letters, digits, and . _ -")
    if len(name) > NAME_CHARACTERS_MAX:
        raise PipelineError(
            f"{where}: {name[:40]!r}… names {what} and has {len(name)} characters; use at most {NAME_CHARACTERS_MAX}"
        )
    return name


def ordered(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes sorted so that each follows all nodes that it reads from, otherwise in order of declaration.

    Raises:
        PipelineError: the graph has a cycle; the message names it.
    """
    readers: dict[int, list[Node]] = {node.ordinal: [] for node in nodes}
    waits = {node.ordinal: len(node.edges) for node in nodes}
    for node in nodes:
        for edge in node.edges:
            readers[edge.source.ordinal].append(node)
    ready = [node.ordinal for node in nodes if not node.edges]
    by_ordinal = {node.ordinal: node for node in nodes}
    result: list[Node] = []
    while ready:
        node = by_ordinal[heappop(ready)]
        result.append(node)
        for reader in readers[node.ordinal]:
            waits[reader.ordinal] -= 1
            if waits[reader.ordinal] == 0:
                heappush(ready, reader.ordinal)
    if len(result) < len(nodes):
        raise PipelineError(_cycle([node for node in nodes if waits[node.ordinal] > 0]))
    return result


def _cycle(stuck: Sequence[Node]) -> str:
    """Return the error message for a cycle among nodes that wait for one another."""
    waiting = {node.ordinal for node in stuck}
    path = [stuck[0]]
    while True:
        source = next(edge.source for edge in path[-1].edges if edge.source.ordinal in waiting)
        if source in path:
            loop = [*path[path.index(source) :], source]
            names = " -> ".join(node.name for node in reversed(loop))
            return f"{loop[0].where}: operators form a cycle: {names}; remove one of its connections"
        path.append(source)


def check(name: str, where: str, nodes: Sequence[Node]) -> None:
    """Refuse a graph that cannot run.

    Raises:
        PipelineError: the graph cannot run; the message names the operator and the fix.
    """
    if not any(node.kind == "source" for node in nodes):
        raise PipelineError(f"{where}: pipeline {name!r} has no source; begin with .source(name, source)")
    ordered(nodes)
    read = {edge.source.ordinal for node in nodes for edge in node.edges}
    for node in nodes:
        if node.kind != "sink" and node.ordinal not in read:
            raise PipelineError(
                f"{node.where}: nothing reads from operator {node.name!r}; end every branch with .sink(name, sink)"
            )
        keyed = [edge for edge in node.edges if edge.key_of is not None]
        if keyed and len(keyed) < len(node.edges):
            raise PipelineError(
                f"{node.where}: operator {node.name!r} reads one stream with key_by and one without; call "
                "key_by after the union"
            )
        _check_form(node)
        if node.kind == "source" and node.subject.partitions < node.parallelism:
            raise PipelineError(
                f"{node.where}: source {node.name!r} has fewer partitions ({node.subject.partitions}) than tasks "
                f"(parallelism={node.parallelism}); give it more partitions or a lower parallelism"
            )


def _check_form(node: Node) -> None:
    """Refuse an operator that reads both rows and vectors, or vectors that are keyed by different columns."""
    if len({edge.source.vectors for edge in node.edges}) > 1:
        raise PipelineError(
            f"{node.where}: operator {node.name!r} reads a stream of rows and one of vectors; "
            "put .to_rows(name) or .to_vectors(name, schema) before one of them"
        )
    columns = {edge.key_of.column for edge in node.edges if isinstance(edge.key_of, ByColumn)}
    if len(columns) > 1:
        raise PipelineError(
            f"{node.where}: operator {node.name!r} reads streams that are keyed by different columns "
            f"({', '.join(sorted(columns))}); call key_by after the union"
        )
