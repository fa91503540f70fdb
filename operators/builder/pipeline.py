"""The builder of a pipeline. Each mistake is reported in one line that names the location and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from causal.errors import PipelineError
from operators import graph
from operators.builder import drawing, unrun
from operators.builder.pipeline_settings import Settings
from operators.builder.streams.stream import Stream
from operators.builder.streams.stream_base import StreamBase, T, kind_of
from operators.graph import DEAD_LETTERS, Edge, Node
from operators.kinds.registry import KINDS
from operators.source import Source

SETTINGS: ContextVar[Settings] = ContextVar("settings")
"""The values of `--set`, which the loader sets while a pipeline file runs."""

_PARALLELISM_MAX = 1024
_RUNNING = frozenset(("run", "start", "execute", "submit"))
"""Methods that run the pipelines of other engines."""


class Pipeline:
    """A named graph of operators.

    Attributes:
        name: letters, digits, and . _ -
        settings: the values of `--set`, as text.
    """

    name: str
    settings: Settings

    def __init__(self, name: str) -> None:
        self._where = graph.caller()
        self.name = graph.check_name(name, "a pipeline", self._where)
        settings = SETTINGS.get(None)
        self.settings = Settings({}) if settings is None else settings
        self._nodes: dict[str, Node] = {}
        self._loose: list[StreamBase[Any]] = []  # streams from key_by and union that no operator reads yet
        unrun.built()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in _RUNNING:
                file = self.__dict__.get("_where", "").rpartition(":")[0].rpartition("/")[2] or "PIPELINE.py"
                raise AttributeError(
                    f"a pipeline has no {name}(): type `causal run {file}`; in a test, "
                    "operators.testing.run(pipeline, {source: records})"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def source(self, name: str, source: Source[T], parallelism: int = 1) -> Stream[T]:
        """Add a source, where records enter; its partitions are distributed over `parallelism` tasks.

        Logs: `barrier`: 2 bytes per checkpoint.
        State: the position in each partition.
        """
        where = graph.caller()
        if not isinstance(source, Source):
            raise PipelineError(f"{where}: source {name!r} is given {kind_of(source)}; give one of operators.sources")
        return self._add(where, name, "source", source, parallelism, [])

    def stream(self, name: str) -> Stream[Any]:
        """Return the output of the operator `name`, so that another operator can read it."""
        node = self._named(name)
        return Stream(self, [Edge(node, time_of=node.time_of)])

    def connect(self, source: str, target: str) -> None:
        """Make `target` also read from `source`, by key if `target` reads its other inputs by key."""
        origin, reader = self._named(source), self._named(target)
        if reader.kind == "source" or origin.kind == "sink":
            raise PipelineError(
                f"{graph.caller()}: {source!r} cannot feed {target!r}; a source has no input, a sink no output"
            )
        if reader.options.get("versions_read"):
            raise PipelineError(
                f"{graph.caller()}: a join reads the versions of table {target!r}; connect it before that"
            )
        key_of = reader.edges[0].key_of if reader.edges else None
        reader.edges.append(Edge(origin, key_of, origin.time_of))

    def place(self, operator: str, host: str | None = None, **labels: str) -> Pipeline:
        """Keep the tasks of an operator on one host, or on hosts with these labels, in a multi-host job.

        Args:
            host: the only host; its standby runs there as well, so the task does not survive the loss of the host.
            labels: labels that a host must have (`causal agent --label gpu=yes`, or `hosts.toml`).
        """
        node = self._named(operator)
        if not host and not labels:
            raise PipelineError(f"{graph.caller()}: {operator!r} is placed nowhere; give a host or labels")
        for name, value in (("host", host or ""), *labels.items()):
            if type(value) is not str:
                raise PipelineError(f"{graph.caller()}: {operator!r} is placed by {name}={value!r:.80}; give a text")
        node.options["place"] = (host or "", dict(labels))
        return self

    @property
    def nodes(self) -> list[Node]:
        """The operators in the order of declaration, without tables of which only the row versions are read."""
        nodes = list(self._nodes.values())
        while True:
            read = {edge.source.ordinal for node in nodes for edge in node.edges}
            kept = [node for node in nodes if node.ordinal in read or not node.options.get("versions_read")]
            if len(kept) == len(nodes):
                return nodes
            nodes = kept

    @property
    def sources(self) -> dict[str, Source[Any]]:
        """The sources by name."""
        return {node.name: node.subject for node in self._nodes.values() if node.kind == "source"}

    def _repr_svg_(self) -> str:
        """Return the graph as SVG, for display in a notebook."""
        return drawing.graph_svg(self.nodes)

    def check(self) -> None:
        """Refuse a pipeline that cannot run.

        Raises:
            PipelineError: one line that names the operator, its file and line, and the remedy.
        """
        unrun.used()
        graph.check(self.name, self._where, self.nodes)
        for node in self.nodes:
            if node.options.get("delivery"):
                what = f'delivery="{node.options["delivery"]}" of {node.name!r} needs event time on all its inputs'
                graph.check_event_time(node, what)
            KINDS[node.kind].check(node)
        for stream in self._loose:
            remedy = ".process, .reduce, .count or .window" if stream.made_by == "key_by" else "an operator or a sink"
            raise PipelineError(f"{stream.where}: nothing reads what {stream.made_by} gives; follow it with {remedy}")

    def _aside(self, where: str, edges: Sequence[Edge], tag: str) -> Stream[Any]:
        return Stream(self, _side(where, edges, tag), where, "side")

    def _named(self, name: str) -> Node:
        if not isinstance(name, str) or name not in self._nodes:
            known = ", ".join(self._nodes) or "none yet"
            raise PipelineError(f"{graph.caller()}: there is no operator {name!r}; there are {known}")
        return self._nodes[name]

    def _add(
        self, where: str, name: str, kind: str, subject: Any, parallelism: int, edges: list[Edge], **options: Any
    ) -> Stream[Any]:
        graph.check_name(name, "an operator", where)
        if name == DEAD_LETTERS:
            raise PipelineError(f"{where}: the name {name!r} is taken by the dead-letter output; choose another")
        if name in self._nodes:
            raise PipelineError(
                f"{where}: there is an operator {name!r} already ({self._nodes[name].where}); choose another name"
            )
        if type(parallelism) is not int or not 1 <= parallelism <= _PARALLELISM_MAX:
            raise PipelineError(
                f"{where}: operator {name!r} has parallelism {parallelism!r}; "
                f"give a whole number from 1 to {_PARALLELISM_MAX}"
            )
        time_of = options.pop("time_of", None)
        node = Node(name, kind, subject, parallelism, where, len(self._nodes), edges, options, time_of=time_of)
        _check_kind(node)
        if node.time_of is None and KINDS[kind].keeps_time:
            node.time_of = graph.time_of_inputs(node)
        gives = KINDS[kind].gives
        node.vectors = gives == "vectors" if gives else subject.vectors if kind == "source" else node.reads_vectors
        self._nodes[name] = node
        return Stream(self, [Edge(node, time_of=node.time_of)])


def _side(where: str, edges: Sequence[Edge], tag: str) -> list[Edge]:
    """Return the edges of the side output `tag` of the single operator that `edges` read."""
    if len(edges) != 1 or edges[0].key_of is not None or edges[0].tag:
        raise PipelineError(f"{where}: side {tag!r} reads no operator; put .side({tag!r}) directly after the operator")
    source = edges[0].source
    tags = KINDS[source.kind].asides
    if tags is not None and source.options.get("delivery"):
        tags = tuple(dict.fromkeys([*tags, "late"]))
    if not isinstance(tag, str) or not tag or (tags is not None and tag not in tags):
        has = f"it has {', '.join(map(repr, tags))}" if tags else "it has no side output"
        remedy = has if tags is not None else "give a text that ctx.aside(tag, record) is given"
        raise PipelineError(f"{where}: nothing puts records aside as {tag!r} in operator {source.name!r}; {remedy}")
    return [Edge(source, time_of=graph.time_of_inputs(source) if tag == "late" else None, tag=tag)]


def _check_kind(node: Node) -> None:
    """Refuse an operator that cannot process its input."""
    kind, place = KINDS[node.kind], f"{node.where}: {node.kind} {node.name!r}"
    if kind.takes == "rows" and node.reads_vectors:
        remedy = "use map_batches, or put .to_rows(name) before it"
        raise PipelineError(f"{place} works on rows, {node.edges[0].source.name!r} gives vectors; {remedy}")
    if node.reads_vectors and node.options.get("delivery"):
        raise PipelineError(f"{place} reads vectors, which have no order of their own; put .to_rows(name) before it")
    if kind.takes == "vectors" and not node.reads_vectors:
        remedy = "put .to_vectors(name, schema) before it"
        raise PipelineError(f"{place} works on vectors, {node.edges[0].source.name!r} gives rows; {remedy}")
    if kind.keyed == "needed" and any(edge.key_of is None for edge in node.edges):
        raise PipelineError(f"{place} works per key; put .key_by(fn) before it")
    if kind.keyed == "never" and node.keyed:
        raise PipelineError(
            f"{place} follows key_by, but keeps no state per key; put it before key_by, or after "
            "a process, reduce, count or window"
        )
