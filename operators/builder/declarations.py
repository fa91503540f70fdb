"""The operators that a pipeline file declares, and their outputs, which other operators read.

`Declarations` is the graph while it is being built. An `Outlet` is the output that a stream or table represents.
Neither class knows the types of records; `Pipeline`, `Stream` and `Table` add them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from causal.errors import PipelineError
from causal.topology import DEAD_LETTERS
from operators import graph
from operators.builder.pipeline_settings import Settings
from operators.graph import Edge, Node
from operators.kinds.registry import KINDS

_PARALLELISM_MAX = 1024


class Declarations:
    """The operators of one pipeline, by name.

    Attributes:
        where: the pipeline's location as file:line.
        settings: the settings of the job, which may contain the parallelism of operators.
        loose: outlets of `key_by`, `union` and similar methods that no operator reads yet.
    """

    def __init__(self, name: str, where: str, settings: Settings) -> None:
        self.name = name
        self.where = where
        self.settings = settings
        self.by_name: dict[str, Node] = {}
        self.loose: list[Outlet] = []

    def replaced(self, nodes: Iterable[Node]) -> Declarations:
        """Return a copy that contains these operators instead."""
        copied = Declarations(self.name, self.where, self.settings)
        copied.by_name = {node.name: node for node in nodes}
        copied.loose = list(self.loose)
        return copied

    def named(self, name: str) -> Node:
        """Return the operator with this name."""
        if not isinstance(name, str) or name not in self.by_name:
            known = ", ".join(self.by_name) or "none yet"
            raise PipelineError(f"{graph.caller()}: operator {name!r} does not exist; the operators are {known}")
        return self.by_name[name]

    def add(
        self, where: str, name: str, kind: str, subject: Any, parallelism: int, edges: list[Edge], **options: Any
    ) -> Outlet:
        """Declare an operator and return its output."""
        graph.check_name(name, "an operator", where)
        if name == DEAD_LETTERS:
            raise PipelineError(f"{where}: the name {name!r} is taken by the dead-letter output; choose another")
        if name in self.by_name:
            raise PipelineError(
                f"{where}: operator {name!r} already exists ({self.by_name[name].where}); choose another name"
            )
        if type(parallelism) is not int or not 1 <= parallelism <= _PARALLELISM_MAX:
            raise PipelineError(
                f"{where}: operator {name!r} has parallelism {parallelism!r}; use a whole number from 1 to "
                f"{_PARALLELISM_MAX}"
            )
        parallelism = self.settings.parallelism(name, parallelism)
        if parallelism < 1 or parallelism > _PARALLELISM_MAX:
            raise PipelineError(
                f"{where}: the setting parallelism.{name} is {parallelism}; use a whole number from 1 to "
                f"{_PARALLELISM_MAX}"
            )
        time_of = options.pop("time_of", None)
        node = Node(name, kind, subject, parallelism, where, len(self.by_name), edges, options, time_of=time_of)
        _check_kind(node)
        if node.time_of is None and KINDS[kind].keeps_time:
            node.time_of = graph.time_of_inputs(node)
        gives = KINDS[kind].gives
        node.vectors = gives == "vectors" if gives else subject.vectors if kind == "source" else node.reads_vectors
        self.by_name[name] = node
        return self.output(node)

    def output(self, node: Node) -> Outlet:
        """Return the main output of an operator."""
        return Outlet(self, [Edge(node, time_of=node.time_of)])

    def connect(self, source: str, target: str) -> None:
        """Add an edge from `source` to `target`; it is keyed if `target` reads its other inputs by key."""
        origin, reader = self.named(source), self.named(target)
        if reader.kind == "source" or origin.kind == "sink":
            raise PipelineError(
                f"{graph.caller()}: {source!r} cannot feed {target!r}; a source has no input and a sink has no output"
            )
        if reader.options.get("versions_read"):
            raise PipelineError(
                f"{graph.caller()}: a join reads the versions of table {target!r}, so the table cannot get further "
                "inputs; call connect before the join"
            )
        key_of = reader.edges[0].key_of if reader.edges else None
        reader.edges.append(Edge(origin, key_of, origin.time_of))

    def place(self, operator: str, host: str | None, labels: dict[str, str]) -> None:
        """Restrict the tasks of an operator to one host, or to hosts with these labels."""
        node = self.named(operator)
        if not host and not labels:
            raise PipelineError(f"{graph.caller()}: {operator!r} is placed without a host or labels; pass one of them")
        for name, value in (("host", host or ""), *labels.items()):
            if type(value) is not str:
                raise PipelineError(f"{graph.caller()}: {operator!r} is placed by {name}={value!r:.80}; pass a string")
        node.options["place"] = (host or "", labels)

    @property
    def nodes(self) -> list[Node]:
        """The operators in declaration order, except tables of which only the row versions are read."""
        nodes = list(self.by_name.values())
        while True:
            read = {edge.source.ordinal for node in nodes for edge in node.edges}
            kept = [node for node in nodes if node.ordinal in read or not node.options.get("versions_read")]
            if len(kept) == len(nodes):
                return nodes
            nodes = kept

    def check(self) -> None:
        """Refuse a graph that cannot run."""
        graph.check(self.name, self.where, self.nodes)
        for node in self.nodes:
            if node.options.get("delivery"):
                what = f'delivery="{node.options["delivery"]}" of {node.name!r} needs event time on all its inputs'
                graph.check_event_time(node, what)
            KINDS[node.kind].check(node)
        for outlet in self.loose:
            remedy = ".process, .reduce, .count or .window" if outlet.made_by == "key_by" else "an operator or a sink"
            raise PipelineError(
                f"{outlet.where}: nothing reads the output of {outlet.made_by}; follow it with {remedy}"
            )


class Outlet:
    """Records that flow from one or more operators; several operators may read them.

    Attributes:
        made_by: the method that returned this outlet if the outlet only changes the properties of its edges; an
            operator must then read the outlet.
    """

    def __init__(self, declared: Declarations, edges: list[Edge], where: str = "", made_by: str = "") -> None:
        self.edges = edges
        self.where = where
        self.made_by = made_by
        self._declared = declared
        if made_by:
            declared.loose.append(self)

    @property
    def vectors(self) -> bool:
        """Whether the records are vectors."""
        return self.edges[0].source.vectors

    def consume(self) -> list[Edge]:
        """Record that an operator reads this outlet, and return the edges."""
        if self in self._declared.loose:
            self._declared.loose.remove(self)
        return list(self.edges)

    def changed(self, edges: list[Edge], where: str, made_by: str) -> Outlet:
        """Return an outlet with other edges, which an operator must read."""
        return Outlet(self._declared, edges, where, made_by)

    def feed(
        self,
        where: str,
        name: str,
        kind: str,
        subject: Any,
        parallelism: int | None = None,
        edges: list[Edge] | None = None,
        **options: Any,
    ) -> Outlet:
        """Declare an operator that reads these records, or `edges`, and return its output.

        Args:
            parallelism: the number of tasks; by default the largest parallelism among the inputs.
        """
        read = self.consume() if edges is None else edges
        if parallelism is None:
            parallelism = max(edge.source.parallelism for edge in read)
        return self._declared.add(where, name, kind, subject, parallelism, read, **options)

    def side(self, where: str, tag: str) -> Outlet:
        """Return the side output `tag` of the only operator that this outlet reads."""
        return self.changed(_side(where, self.consume(), tag), where, "side")


def _side(where: str, edges: Sequence[Edge], tag: str) -> list[Edge]:
    """Return the edges of the side output `tag` of the only operator that `edges` read."""
    if len(edges) != 1 or edges[0].key_of is not None or edges[0].tag:
        raise PipelineError(
            f"{where}: side {tag!r} does not follow an operator; put .side({tag!r}) directly after the operator"
        )
    source = edges[0].source
    tags = KINDS[source.kind].asides
    if tags is not None and source.options.get("delivery"):
        tags = tuple(dict.fromkeys([*tags, "late"]))
    if not isinstance(tag, str) or not tag or (tags is not None and tag not in tags):
        has = f"it has {', '.join(map(repr, tags))}" if tags else "it has no side output"
        remedy = has if tags is not None else "use the tag that is passed to ctx.aside(tag, record)"
        raise PipelineError(f"{where}: operator {source.name!r} never puts records aside as {tag!r}; {remedy}")
    return [Edge(source, time_of=graph.time_of_inputs(source) if tag == "late" else None, tag=tag)]


def _check_kind(node: Node) -> None:
    """Refuse an operator that cannot process the kind of input that it reads."""
    kind, place = KINDS[node.kind], f"{node.where}: {node.kind} {node.name!r}"
    if kind.takes == "rows" and node.reads_vectors:
        remedy = "use map_batches, or put .to_rows(name) before it"
        raise PipelineError(f"{place} works on rows, but {node.edges[0].source.name!r} emits vectors; {remedy}")
    if node.reads_vectors and node.options.get("delivery"):
        raise PipelineError(f"{place} reads vectors, which have no order of their own; put .to_rows(name) before it")
    if kind.takes == "vectors" and not node.reads_vectors:
        remedy = "put .to_vectors(name, schema) before it"
        raise PipelineError(f"{place} works on vectors, but {node.edges[0].source.name!r} emits rows; {remedy}")
    if kind.keyed == "needed" and any(edge.key_of is None for edge in node.edges):
        raise PipelineError(f"{place} works per key; put .key_by(fn) before it")
    if kind.keyed == "never" and node.keyed and not node.options.get("of_table"):
        raise PipelineError(
            f"{place} follows key_by, but keeps no state per key; put it before key_by, or after "
            "a process, reduce, count or window"
        )
