"""The layout of a pipeline as tasks: the topology for the core, and the chains, readers and stores it uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.cut import Mark
from causal.errors import PipelineError, Unavailable, invariant
from causal.ids import OUTSIDE, ChannelId, TaskIndex, TaskName
from causal.ports import SinkStore, WithdrawingStore
from causal.storage.shared import Depot
from causal.topology import DEAD_LETTERS, LETTER_TASK, REQUESTS, Channel, Task, Topology
from operators.builder.pipeline import Pipeline
from operators.engine.cell_chain import CellChain, Inside, Member, Outside
from operators.engine.cells import PER_TASK, apart, cells
from operators.engine.chain import FusedChain
from operators.engine.checked import checked
from operators.engine.fusion import Group, fuse
from operators.engine.operator_chain import OperatorChain
from operators.engine.sink_chain import SinkChain
from operators.engine.tree import Tree
from operators.graph import ORDERED, ByColumn, Edge, Node, givers, places
from operators.kinds.registry import KINDS
from operators.records.item_keys import item_of
from operators.sinks.contract.refusals import limit_of, refusing
from operators.sinks.contract.refused_rows import RefusedRows
from operators.sinks.contract.sink import Sink, check_writable
from operators.sinks.journaled.request_store import DIRECTORY as REQUESTED
from operators.sinks.journaled.request_store import RequestStore, SharedRequestStore
from operators.sinks.objects.refused_objects import RefusedObjects
from operators.sinks.staging.staged_place import DIRECTORY as STAGED
from operators.sinks.staging.staged_place import staged_in_directory, staged_in_store
from operators.source import Companion, PartitionReader, Source, SourceContext
from operators.stage.branch import Input
from operators.stage.failures import Failures
from operators.stage.routing import (
    BroadcastRoute,
    CountedRoute,
    DirectRoute,
    KeyedRoute,
    Route,
    StraightRoute,
    TurnRoute,
)

CHANNELS_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class Link:
    """The channels of one graph edge, from the tasks of `source` to the root operator of `target`."""

    edge: Edge
    source: Group
    target: Group
    channels: tuple[Channel, ...]


class Plan:
    """A pipeline laid out as tasks and channels.

    A *subtask* is one instance of a group of fused operators. Each subtask is a task, unless several share a task,
    which is a cell (D20). Methods accept tasks and channels of `topology`; internally, all is arranged by subtask.

    Attributes:
        topology: the tasks and channels that the core runs; `topology.subtasks` has the subtasks and all channels.
        processes: how subtasks share tasks: `per-task`, `one` or `stages`.
        operators: all operators, in pipeline order.
        sources: the names of the sources, in pipeline order.
    """

    def __init__(self, pipeline: Pipeline, config: JobConfig, groups: list[Group]) -> None:
        self.name = pipeline.name
        self._givers = givers(pipeline.nodes)
        self._places = places(pipeline.nodes)
        self.operators = tuple(pipeline.nodes)
        self.sources = tuple(node.name for node in pipeline.nodes if node.kind == "source")
        self._config = config
        self._groups = groups
        self.processes = config.processes or pipeline.processes or PER_TASK
        for sink in [group.root.subject for group in groups if group.root.kind == "sink"]:
            sink.durability = sink.durability or config.durability
        tasks: list[Task] = []
        self._group_of: list[Group] = []
        for group in groups:
            group.first = len(tasks)
            names = tuple(node.name for node in group.nodes)
            for index in range(group.parallelism):
                ordered = group.root.options.get("delivery") == ORDERED
                tasks.append(Task(TaskIndex(len(tasks)), TaskName(f"{group.name}/{index}"), names, ordered))
                self._group_of.append(group)
        self._letter_task: TaskIndex | None = None
        if config.on_error == "dead-letter":
            self._letter_task = TaskIndex(len(tasks))
            tasks.append(Task(self._letter_task, LETTER_TASK, (DEAD_LETTERS,)))
        self._channels: list[Channel] = []
        self._links: list[Link] = []
        self._letters: dict[int, Channel] = {}
        self._requests: dict[int, Channel] = {}
        self._connect()
        if len(self._channels) > CHANNELS_MAX:
            raise PipelineError(
                f"the pipeline needs {len(self._channels)} channels, but the limit is {CHANNELS_MAX}; lower "
                "the parallelism of its operators"
            )
        self.subtasks = Topology(tuple(tasks), tuple(self._channels))
        self.topology = self._grouped(self.subtasks)
        self._ordinals = [
            {channel.id: ordinal for ordinal, channel in enumerate(self.subtasks.outputs(task.index))} for task in tasks
        ]

    def _grouped(self, subtasks: Topology) -> Topology:
        """Return the topology whose tasks perform these subtasks."""
        if self.processes == PER_TASK:
            return subtasks
        return Topology.grouped(subtasks, cells(subtasks, self._groups, self.processes, self._config))

    # The channels of partitions come first, followed by those of edges, stores and requests. Dead-letter channels come
    # last, so that all other channels keep their numbers if a resumed job begins to write dead letters.

    def _channel(self, source: int, target: int, partition: int = 0) -> Channel:
        channel = Channel(ChannelId(len(self._channels)), TaskIndex(source), TaskIndex(target), partition)
        self._channels.append(channel)
        return channel

    def _connect(self) -> None:
        for group in self._groups:
            if group.root.kind == "source":
                for partition in range(group.root.subject.partitions):
                    self._channel(OUTSIDE, group.first + partition % group.parallelism, partition)
        home = {node.ordinal: group for group in self._groups for node in group.nodes}
        for group in self._groups:
            for edge in group.root.edges:
                self._link(edge, home[edge.source.ordinal], group)
        for group in self._groups:
            if group.root.kind == "sink":
                for index in range(group.parallelism):
                    self._channel(group.first + index, OUTSIDE)
        if self._config.guarantee == "causal":
            for task, group in enumerate(self._group_of):
                if any(node.kind == "call" for node in group.nodes):
                    self._requests[task] = self._channel(task, OUTSIDE, REQUESTS)
        self._channels_before_letters = len(self._channels)
        if self._letter_task is not None:
            for task in range(len(self._group_of)):
                self._letters[task] = self._channel(task, self._letter_task)
            self._channel(self._letter_task, OUTSIDE)

    def _link(self, edge: Edge, source: Group, target: Group) -> None:
        senders, readers = source.parallelism, target.parallelism
        if edge.key_of is not None and readers > self._config.key_groups:
            raise PipelineError(
                f"{target.root.where}: operator {target.root.name!r} has parallelism {readers}, but the job has "
                f"only {self._config.key_groups} key groups; lower the parallelism, or raise key_groups"
            )
        one_each = edge.key_of is None and not edge.broadcast and readers <= senders
        channels = [
            self._channel(source.first + sender, target.first + reader)
            for sender in range(senders)
            for reader in ([sender % readers] if one_each else range(readers))
        ]
        self._links.append(Link(edge, source, target, tuple(channels)))

    @property
    def letter_task(self) -> Task | None:
        """The task that writes dead letters; None if failing records stop the job."""
        return None if self._letter_task is None else self.topology.performer(LETTER_TASK)

    @property
    def topology_without_letters(self) -> Topology:
        """The topology that the plan would have if failing records stopped the job; its subtasks are the first ones."""
        tasks = self.subtasks.tasks[: self._letter_task]
        return self._grouped(Topology(tasks, self.subtasks.channels[: self._channels_before_letters]))

    def chain(self, task: int) -> OperatorChain:
        """Return a new chain of the task in its initial state; no user code has been called yet."""
        subtasks = self.topology.subtasks_of(task)
        if len(subtasks) == 1:
            return self.subtask_chain(subtasks[0].index)
        places = {subtask.index: place for place, subtask in enumerate(subtasks)}
        inputs_of = {subtask.index: [c.id for c in self.subtasks.inputs(subtask.index)] for subtask in subtasks}
        outside = {self.topology.subtask_channel(c).id: o for o, c in enumerate(self.topology.outputs(TaskIndex(task)))}
        result, ordinal = list[Member](), 0
        for subtask in subtasks:
            links: list[Inside | Outside] = []
            for channel in self.subtasks.outputs(subtask.index):
                if channel.id in outside:
                    links.append(Outside(outside[channel.id], channel.target != OUTSIDE))
                else:
                    links.append(Inside(places[channel.target], inputs_of[channel.target].index(channel.id)))
            chain = self.subtask_chain(subtask.index, ordinal)
            ordinal += len(chain.stages)
            count = len(inputs_of[subtask.index])
            result.append(Member(subtask.name, chain, links, [0] * count, [False] * count))
        inputs = [self.topology.subtask_channel(channel) for channel in self.topology.inputs(TaskIndex(task))]
        return CellChain(result, [(places[c.target], inputs_of[c.target].index(c.id)) for c in inputs])

    def subtask_chain(self, subtask: int, ordinal: int = 0, fused: type[FusedChain] = FusedChain) -> OperatorChain:
        """Return a new chain of one subtask in its initial state.

        Args:
            ordinal: the ordinal of the first stage, because ordinals are unique within a task.
        """
        inputs = [self._input(channel) for channel in self.subtasks.inputs(TaskIndex(subtask))]
        if subtask == self._letter_task:
            return SinkChain(DEAD_LETTERS, self._letter_sink(None), inputs, 0, Failures(None, 0))
        group, ordinals = self._group_of[subtask], self._ordinals[subtask]
        letters = self._letters.get(subtask)
        to_letters = None if letters is None else ordinals[letters.id]
        limit = self._config.record_bytes_max
        failures = Failures(None if letters is None else self._letter_sink(None), limit, self._givers, self._places)
        if group.root.kind == "sink":
            return SinkChain(group.root.name, group.root.subject, inputs, 0, failures, to_letters)
        tree = Tree(group, inputs, self.subtasks.tasks[subtask].name, self._config, failures, self._tags, ordinal)
        for link in self._links:
            if link.source is group:
                branch = tree.reader(link.edge)
                branch.stage.traced = True
                branch.routes.append(self._route(link, subtask))
                branch.ordinals += [ordinals[channel.id] for channel in link.channels if channel.source == subtask]
        requests = self._requests.get(subtask)
        asked = None if requests is None else ordinals[requests.id]
        return fused(
            tree.root, inputs, failures, tree.numbers, limit, tree.arrival, tree.active, to_letters, asked,
            group.commutes,
        )  # fmt: skip

    @property
    def commuting(self) -> frozenset[str]:
        """The tasks in which every operator has no state or declares that its records commute."""
        tasks = [
            (task, subtasks)
            for task in self.topology.tasks
            if len(subtasks := self.topology.subtasks_of(task.index)) == 1
        ]
        return frozenset(task.name for task, [subtask] in tasks if self._commutes(subtask.index))

    def _commutes(self, subtask: int) -> bool:
        return subtask != self._letter_task and self._group_of[subtask].commutes

    def nodes(self, task: int) -> tuple[Node, ...]:
        """Return the operators that the task performs; the dead-letter task performs none."""
        return tuple(node for subtask in self.topology.subtasks_of(task) for node in self.subtask_nodes(subtask.index))

    def subtask_nodes(self, subtask: int) -> tuple[Node, ...]:
        """Return the operators that a subtask performs."""
        return () if subtask == self._letter_task else tuple(self._group_of[subtask].nodes)

    def _tags(self, node: Node) -> frozenset[str]:
        """Return the tags of an operator's side outputs that have readers."""
        edges = [edge for group in self._groups for reader in group.nodes for edge in reader.edges]
        return frozenset(edge.tag for edge in edges if edge.source is node and edge.tag)

    def _route(self, link: Link, task: int) -> Route:
        ordinals = [self._ordinals[task][channel.id] for channel in link.channels if channel.source == task]
        target = link.target.root.name
        if link.edge.broadcast:
            return BroadcastRoute(target, ordinals)
        if link.edge.source.vectors:
            from operators.kinds.vectors import vector_routing

            if isinstance(link.edge.key_of, ByColumn):
                column, wanted = link.edge.key_of.column, link.target.root.columns_wanted
                return vector_routing.VectorKeyedRoute(target, ordinals, column, self._config.key_groups, wanted)
            if len(ordinals) > 1:
                return vector_routing.VectorTurnRoute(target, ordinals)
            return DirectRoute(target, ordinals[0])
        if link.edge.key_of is not None and KINDS[link.target.root.kind].counts_suffice(link.target.root):
            return CountedRoute(target, ordinals, link.edge.key_of, self._config.key_groups)
        if link.edge.key_of is not None:
            kind = StraightRoute if len(ordinals) == 1 else KeyedRoute
            return kind(target, ordinals, link.edge.key_of, self._config.key_groups)
        return DirectRoute(target, ordinals[0]) if len(ordinals) == 1 else TurnRoute(target, ordinals)

    def _input(self, channel: Channel) -> Input:
        if channel.source == OUTSIDE:
            return Input(self._label(channel))
        label = f"the channel from {self.subtasks.tasks[channel.source].name}"
        for link in self._links:
            if channel in link.channels:
                edge = link.edge
                sender = f"{edge.source.name}:{edge.tag}:{edge.side}"
                key_of = None if edge.source.vectors else edge.key_of  # stages on vectors look up the keys themselves
                return Input(label, key_of, edge.side, edge.time_of, item_of(key_of), sender)
        return Input(label)

    def _label(self, channel: Channel) -> str:
        return f"partition {channel.partition} of source {self._group_of[channel.target].root.name!r}"

    def keyed(self, operator: str) -> bool:
        """Return whether the operator named `operator` keeps its state per record key."""
        return any(node.keyed for group in self._groups for node in group.nodes if node.name == operator)

    def reader(
        self, channel: Channel, job_directory: Path, began_ns: int, position: int = 0, mark: Mark | None = None
    ) -> PartitionReader:
        """Return a reader of the partition that `channel` (from OUTSIDE) represents.

        Args:
            began_ns: the value of `time.monotonic_ns()` when the job began to read.
            position: the position at the checkpoint from which the task continues.
            mark: the mark of that position in the checkpoint.
        """
        invariant(channel.source == OUTSIDE, "a reader is for a channel from outside", channel=channel)
        node = self._group_of[self.topology.subtask_channel(channel).target].root
        config = self._config
        context = SourceContext(
            node.name, job_directory, began_ns, config.guarantee != "none", config.store, config.place_in_store,
            position, mark,
        )  # fmt: skip
        return checked(node.name, node.subject, node.subject.open(channel.partition, context))

    def source_of(self, channel: Channel) -> tuple[str, Source[Any]]:
        """Return the name and the source of a partition."""
        root = self._group_of[self.topology.subtask_channel(channel).target].root
        return root.name, root.subject

    def sink_of(self, channel: Channel) -> Sink:
        """Return the sink whose rows a channel to the outside carries."""
        subtask = self.topology.subtask_channel(channel).source
        return self._letter_sink(None) if subtask == self._letter_task else self._group_of[subtask].root.subject

    def store(self, channel: Channel, job_directory: Path) -> SinkStore:
        """Return the store that `channel` (to OUTSIDE) represents; it fences and reads nothing until it is opened."""
        invariant(channel.target == OUTSIDE, "a store is for a channel to the outside", channel=channel)
        task, channel = self.topology.account(channel), self.topology.subtask_channel(channel)
        if channel.carries_requests and self._config.store:
            return SharedRequestStore(task, self._config.store, self._config.place_in_store)
        if channel.carries_requests:
            return RequestStore(task, job_directory / REQUESTED, self._config.durability == "os")
        if channel.source == self._letter_task:
            store = self._letter_sink(job_directory).open_store(task, job_directory)
        else:
            node, letters = self._group_of[channel.source].root, None
            if self._letter_task is not None:
                letters = self._letters_of_rows(job_directory, task)
            store = refusing(node.subject.open_store(task, job_directory), node.subject, node.name, task, letters)
        if self._config.guarantee != "epoch":
            return store
        config = self._config
        if config.store:
            url, place = config.store, config.place_in_store
            connect = partial(Depot, url, place, proof="")
            return staged_in_store(store, task, config.staged_bytes_max, f"{url}/{place}", connect)
        directory = job_directory / STAGED / task
        return staged_in_directory(store, task, directory, config.staged_bytes_max, config.durability)

    def _letter_sink(self, job_directory: Path | None) -> Sink:
        from operators.sinks.files.jsonlines import JsonLinesSink

        if url := self._letter_url:
            return JsonLinesSink(url)
        sink = JsonLinesSink(self._letter_directory(job_directory), durability=self._config.durability)
        sink.private = not self._config.dead_letters
        return sink

    def _letters_of_rows(self, job_directory: Path, task: str) -> RefusedRows | RefusedObjects:
        """Return the destination of dead letters for rows that the store of the given sink task refuses."""
        if url := self._letter_url:
            return RefusedObjects(url, task, self._config.run)
        private = not self._config.dead_letters
        return RefusedRows(self._letter_directory(job_directory), task, self._config.run, private)

    @property
    def _letter_url(self) -> str:
        """The URL of the dead letters if the job's hosts share a store; empty if dead letters are written to files."""
        config = self._config
        return (
            "" if config.dead_letters or not config.store else f"{config.store}/{config.place_in_store}/{DEAD_LETTERS}"
        )

    def _letter_directory(self, job_directory: Path | None) -> Path:
        path = self._config.dead_letters
        return Path(path) if path else (job_directory or Path()) / DEAD_LETTERS

    def check(self, job_directory: Path) -> None:
        """Ask sources and sinks to report mistakes that can be detected before the job starts; call this once per job.

        Raises:
            PipelineError: describes the first mistake found.
        """
        for group in self._groups:
            if group.root.kind in ("source", "sink"):
                group.root.subject.check()
        if self._config.state_directory:
            check_writable(Path(self._config.state_directory), "setting state_directory")
        if self._letter_task is not None:
            try:
                self._letter_sink(job_directory).check()
            except PipelineError as problem:
                raise PipelineError(f"setting dead_letters: {problem}") from None

    def check_resumed(self, job_directory: Path, rolled_back: bool) -> None:
        """Perform `check` for a resumed job, whose sources continue from the files in the job directory.

        Raises:
            PipelineError: describes the first mistake found.
        """
        self.check(job_directory)
        for group in self._groups:
            if group.root.kind == "source":
                group.root.subject.check_resumed(group.root.name, job_directory, rolled_back)

    def check_readable(self, positions: Mapping[tuple[str, int], tuple[int, Mark | None]], job_directory: Path) -> None:
        """Ask the sources whether their partitions can still be read from earlier positions.

        Args:
            positions: (source, partition) → (position, its mark, if the checkpoint has one).
        Raises:
            PipelineError: the input from one of these positions is no longer kept.
        """
        stored = self._config.store, self._config.place_in_store
        for group in self._groups:
            if group.root.kind == "source":
                name, source = group.root.name, group.root.subject
                for partition in range(source.partitions):
                    position, mark = positions.get((name, partition), (0, None))
                    context = SourceContext(name, job_directory, 0, True, *stored, position, mark)
                    source.check_readable(partition, position, context)

    def check_stores(self, job_directory: Path, run: str) -> None:
        """Check the stores of sinks that refuse rows of an earlier run, before that run's state is discarded.

        A store without such rows is claimed for `run`; no row is changed.

        Raises:
            PipelineError: a store contains such rows.
            Unavailable: a store is unavailable, so it is not known whether it contains such rows.
        """
        for channel in self.subtasks.channels:
            if channel.target != OUTSIDE or channel.carries_requests or channel.source == self._letter_task:
                continue
            sink: Sink = self._group_of[channel.source].root.subject
            if sink.existing != "refuse":
                continue
            task = self.subtasks.tasks[channel.source].name
            store = sink.open_store(task, job_directory)
            try:
                store.open(task, run, 0)
            finally:
                store.close()

    def sink_places(self) -> dict[str, str]:
        """Return the location of the rows by subtask of a sink, for the sinks that report a location."""
        places = {
            self.subtasks.tasks[channel.source].name: self._group_of[channel.source].root.subject.place
            for channel in self.subtasks.channels
            if channel.target == OUTSIDE and not channel.carries_requests and channel.source != self._letter_task
        }
        return {task: place for task, place in places.items() if place}

    def newest_run(self) -> str | None:
        """Return the newest run that any sink knows; skip stores that are currently unavailable."""
        newest: set[str] = set()
        for group in self._groups:
            if group.root.kind == "sink":
                with suppress(Unavailable):  # when the store is available again, its `open` decides
                    newest.add(group.root.subject.newest_run() or "")
        return max(newest, default="") or None

    def without_withdrawal(self, job_directory: Path) -> list[str]:
        """Return the sinks that cannot withdraw rows although failures beyond the sharing depth may require it (D9)."""
        if self._config.guarantee != "causal" or self._config.sharing_depth >= self.topology.depth:
            return []
        names: dict[str, None] = {}
        for group in self._groups:
            if group.root.kind == "sink":
                task = self.subtasks.tasks[group.first].name
                if not isinstance(group.root.subject.open_store(task, job_directory), WithdrawingStore):
                    names[group.root.name] = None
        return list(names)

    def return_limits(self, job_directory: Path) -> dict[str, Callable[[int], str]]:
        """Return, for each sink task, why its store cannot withdraw so many rows for a return to a savepoint."""
        topology = self.topology
        channels = [each for each in topology.channels if each.target == OUTSIDE and not each.carries_requests]
        return {topology.account(each): partial(limit_of, self.store(each, job_directory)) for each in channels}

    def places(self) -> dict[str, tuple[str, dict[str, str]]]:
        """Return task → (host, labels) for the tasks that are restricted to certain hosts.

        Raises:
            PipelineError: operators of one task are placed on different hosts.
        """
        places: dict[str, tuple[str, dict[str, str]]] = {}
        for task, group in enumerate(self._group_of):
            for node in group.nodes:
                if "place" not in node.options:
                    continue
                host, labels = node.options["place"]
                name = self._task_of(task).name
                before, known = places.get(name, ("", {}))
                if before and host and before != host:
                    raise PipelineError(f"{node.where}: {name} is placed on {before} and on {host}; choose one of them")
                places[name] = (host or before, {**known, **labels})
                if node.kind == "source":  # companion processes run on the host of the source's tasks
                    for companion in node.subject.companions(node.name, Path()):
                        places[f"companion-{companion.name}"] = places[name]
        return places

    def _task_of(self, subtask: int) -> Task:
        """Return the task that performs a subtask."""
        task = self.topology.performer(self.subtasks.tasks[subtask].name)
        invariant(task is not None, "each subtask is performed", subtask=subtask)
        return task  # type: ignore[return-value]

    def bound(self) -> list[tuple[str, str]]:
        """Return (task, reason) for each task whose machine keeps data that a successor elsewhere would need."""
        reasons: list[tuple[str, str]] = []
        for task, group in enumerate(self._group_of):
            name, sink = self._task_of(task).name, group.root.subject
            if group.root.kind == "sink" and not sink.everywhere:
                reasons.append((name, f"{type(sink).__name__} keeps its rows on the machine of its task"))
            if task in self._requests and not self._config.store:
                reasons.append((name, "the answers to its calls are kept on the machine of its task"))
            if group.root.kind == "source" and not group.root.subject.everywhere:
                reasons.append((name, f"{type(group.root.subject).__name__} ingests on the machine of its task"))
        if self._letter_task is not None and not self._letter_url:
            letters = self._task_of(self._letter_task).name
            reasons.append((letters, "dead letters are kept on the machine of their task"))
        return reasons

    @property
    def positions_travel(self) -> bool:
        """Whether another job can begin at this job's source positions."""
        return all(group.root.subject.positions_travel for group in self._groups if group.root.kind == "source")

    @property
    def takes_standard_input(self) -> bool:
        """Whether a source reads the standard input of `causal run`."""
        return any(group.root.subject.takes_standard_input for group in self._groups if group.root.kind == "source")

    def companions(self, job_directory: Path) -> list[Companion]:
        """Return the processes that the sources need in addition to the job's own processes."""
        return [
            companion
            for group in self._groups
            if group.root.kind == "source"
            for companion in group.root.subject.companions(group.root.name, job_directory)
        ]

    def continues(self, earlier: Plan) -> bool:
        """Return whether the companions that were started for an earlier version can work for this one."""
        sources = [{g.root.name: g.root.subject for g in p._groups if g.root.kind == "source"} for p in (self, earlier)]
        both = [{name for name, each in known.items() if each.companions(name, Path())} for known in sources]
        return both[0] == both[1] and all(sources[0][name].continues(sources[1][name]) for name in both[0])

    def describe(self) -> dict[str, Any]:
        """Return the plan in the form that `causal plan --json` prints."""
        tasks = [self._described(task) for task in self.topology.tasks]
        described: dict[str, Any] = {"pipeline": self.name, "tasks": tasks}
        if self.processes != PER_TASK:
            described["processes"] = self.processes
            described["apart"] = [
                {"operator": each.operator, "reason": each.reason}
                for each in apart(self._groups, self.processes, self._config)
            ]
        return described

    def _described(self, task: Task) -> dict[str, Any]:
        inputs = [
            f"{self._group_of[self.topology.subtask_channel(channel).target].root.name}[{channel.partition}]"
            if channel.source == OUTSIDE
            else self.topology.tasks[channel.source].name
            for channel in self.topology.inputs(task.index)
        ]
        outputs = [
            "outside" if channel.target == OUTSIDE else self.topology.tasks[channel.target].name
            for channel in self.topology.outputs(task.index)
            if not channel.carries_requests
        ]
        subtasks = [subtask.name for subtask in self.topology.subtasks_of(task.index)]
        described = {"task": task.name, "operators": list(task.operators), "inputs": inputs, "outputs": outputs}
        return described if len(subtasks) == 1 else {**described, "subtasks": subtasks}


def plan(pipeline: Pipeline, config: JobConfig) -> Plan:
    """Return the plan of a pipeline for a configuration; the plan is the same in every process of a job.

    Raises:
        PipelineError: the pipeline cannot run.
    """
    pipeline.check()
    known = [node.name for node in pipeline.nodes if node.kind != "source"]
    for name in config.hot_operators:
        if name not in known:
            raise PipelineError(
                f"--standbys: {name!r} is not an operator downstream of a source; those are {', '.join(known)}"
            )
    if config.input:
        from operators.engine.recorded_input import read_recorded  # imported here because few jobs need it

        read_recorded(pipeline.nodes)
    return Plan(pipeline, config, fuse(pipeline.nodes))
