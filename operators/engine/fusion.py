"""The fusion of operators into chains; a chain is a tree of operators without a shuffle between them.

An operator begins a new chain if records must be redistributed: it reads by key, from several streams, or with a
parallelism that differs from that of its source. An operator also begins a new chain if its kind requires one; for
example, each sink has its own store (D8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from operators.graph import Node, ordered
from operators.kinds.registry import KINDS

_WITHOUT_STATE = frozenset(("map", "filter", "flat_map"))


@dataclass(eq=False, slots=True)
class Group:
    """Operators that run in the same tasks.

    Attributes:
        nodes: the root, followed by the other operators in topological order.
        first: the index of the group's first task in the topology, which is set when tasks are numbered.
    """

    nodes: list[Node] = field(default_factory=list)
    first: int = 0

    @property
    def root(self) -> Node:
        return self.nodes[0]

    @property
    def name(self) -> str:
        """The name of the group's tasks, which is the name of its last operator."""
        return self.nodes[-1].name

    @property
    def parallelism(self) -> int:
        return self.root.parallelism

    @property
    def commutes(self) -> bool:
        """Whether each operator has no state or declares that its records commute."""
        return all(
            node.kind in _WITHOUT_STATE
            or (node.kind == "process" and node.subject.commutes and "delivery" not in node.options)
            for node in self.nodes
        )


def fuse(nodes: Sequence[Node]) -> list[Group]:
    """Return the groups, each after all groups from which it reads.

    Raises:
        PipelineError: the operators form a cycle.
    """
    groups: list[Group] = []
    group_of: dict[int, Group] = {}
    for node in ordered(nodes):
        group = None if _begins(node) else group_of[node.edges[0].source.ordinal]
        if group is None:
            group = Group()
            groups.append(group)
        group.nodes.append(node)
        group_of[node.ordinal] = group
    return groups


def _begins(node: Node) -> bool:
    """Return whether a node is the first operator of its tasks."""
    if KINDS[node.kind].begins or len(node.edges) != 1 or node.options.get("delivery"):
        return True
    edge = node.edges[0]
    return edge.key_of is not None or edge.broadcast or edge.source.parallelism != node.parallelism
