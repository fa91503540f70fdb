"""A tree of branches for the stages of one task: operators, holds that order their input, and side outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from causal.config import JobConfig
from causal.errors import invariant
from operators.capture.active import Active
from operators.engine.fusion import Group
from operators.graph import ORDERED, Edge, Node, before_by_side
from operators.kinds.ordering.hold import LATE, HoldStage
from operators.kinds.registry import KINDS
from operators.stage.branch import Branch, Input, Numbers, SideStage
from operators.stage.failures import Failures
from operators.stage.scope import Arrival, Scope


class Tree:
    """The tree of stages that makes up a chain.

    Attributes:
        root: the branch of the stage that receives arriving records.
        numbers, arrival, active: objects that all stages share.
    """

    def __init__(
        self,
        group: Group,
        inputs: Sequence[Input],
        task: str,
        config: JobConfig,
        failures: Failures,
        tags_of: Callable[[Node], frozenset[str]],
        ordinal: int = 0,
    ) -> None:
        """
        Args:
            ordinal: the ordinal of the first stage.
            tags_of: returns the tags of the side outputs of an operator that have readers.
        """
        self.numbers, self.arrival, self.active = Numbers(), Arrival(), Active(task, config.run)
        self._inputs = inputs
        self._task = task
        self._config = config
        self._failures = failures
        self._branches: dict[int, Branch] = {}
        self._holds: dict[int, Branch] = {}
        self._ordinal = ordinal
        for node in group.nodes:
            self._add(node, tags_of(node), first=node is group.root)
        self.root = self._holds.get(group.root.ordinal) or self._branches[group.root.ordinal]

    def reader(self, edge: Edge) -> Branch:
        """Return the branch to which the reader of an edge is attached: that of the source or of its side output."""
        branch = self._branches[edge.source.ordinal]
        if not edge.tag:
            return branch
        if edge.tag == LATE:
            branch = self._holds.get(edge.source.ordinal, branch)
        side = branch.side(edge.tag)
        if side is None:
            side = Branch(SideStage(f"{edge.source.name}.{edge.tag}", self._scope()))
            branch.sides.append((edge.tag, side))
        return side

    def _add(self, node: Node, tags: frozenset[str], first: bool) -> None:
        parent = None if first else self.reader(node.edges[0])
        if node.options.get("delivery") == ORDERED:
            invariant(first, "what is delivered in order begins a task", operator=node.name)
            parent = self._holds[node.ordinal] = Branch(self._hold(node, tags))
            parent.stage.keyed = node.keyed
            tags = tags.difference([LATE])
        branch = Branch(KINDS[node.kind].stage(node, self._scope(tags)), vectors=node.vectors)
        self._branches[node.ordinal] = branch
        branch.stage.kind, branch.stage.meaning = node.kind, KINDS[node.kind].meaning(node)
        branch.stage.before = before_by_side(node)
        branch.stage.keyed = node.keyed or KINDS[node.kind].keyed == "never"
        if parent is not None:
            parent.children.append(branch)
            branch.stage.parent, parent.stage.traced = parent.stage, True

    def _hold(self, node: Node, tags: frozenset[str]) -> HoldStage:
        inputs = [(each.time_of, each.side) for each in self._inputs if each.time_of is not None]
        invariant(len(inputs) == len(self._inputs), "ordered records have event time", operator=node.name)
        return HoldStage(node, self._scope(tags), inputs)

    def _scope(self, tags: frozenset[str] = frozenset()) -> Scope:
        """Return the scope for the next stage."""
        self._ordinal += 1
        return Scope(
            self._ordinal - 1, self._failures, self._task, self.numbers, self._config, self.arrival, self.active,
            len(self._inputs), tags, tuple(each.time_of for each in self._inputs),
        )  # fmt: skip
