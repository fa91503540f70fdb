"""Conversion of a savepoint's state to another pipeline, with another parallelism or operators added or removed.

No element is in flight at a final barrier, so the new graph begins there: channels between tasks at position 0, sources
and sinks at their saved positions, and keyed tables distributed by key group. The conversion is performed offline, task
by task: a new chain of the new plan loads its parts and writes them as its first snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from causal.cut import Cut, Mark
from causal.errors import PipelineError
from causal.ids import OUTSIDE
from causal.ports import Chain
from causal.records.values import decode
from causal.topology import Channel, Task, Topology
from operators.engine.chain import FusedChain
from operators.engine.plan import Plan
from operators.kinds.ordering.hold import HoldStage
from operators.kinds.tables.unsettled import RowStage
from operators.records.keys import key_group, task_of_group
from operators.runtime.regrouping import Saved, grouped_chains, grouped_cuts, saved_subtasks
from operators.runtime.sent_rows import SentRows, Written
from operators.stage.stages import Stage
from operators.stage.watermark_merge import Merge, Origins, least
from operators.state.snapshot_parts import header_part, read_part, table_part
from operators.state.timers import TimerTable

KEYS_PER_STEP = 10_000
ALLOW = "--allow-dropped-state"

Fragments = dict[int, dict[str, list[bytes]]]
"""The fragments by key group and, within it, by table."""


@dataclass(slots=True)
class Share:
    """The part of an old task's state that a new task inherits, as a single full snapshot."""

    saved: Saved
    header: dict[str, Any]
    fragments: Fragments

    @property
    def marks(self) -> dict[str, Sequence[int | None]]:
        """The most recent watermarks that each stage had received and passed on, by the name of the stage."""
        marks, names = self.header["marks"], self.header["names"]
        return dict(zip(names, marks, strict=True)) if len(names) == len(marks) else {}


class Rescaling:
    """The conversion of the state of a savepoint's tasks to the state of the tasks of `plan`.

    Args:
        before: the graph of the job that wrote the savepoint.
        written: loads the plan of that job, from which the values that its tables had sent are derived; None if its
            code is that of `plan`.

    Attributes:
        obstacle: why changes since the savepoint cannot be converted alone (`operators.runtime.later_changes`); empty
            if they can. It is complete once `chains` has been called.

    Raises:
        PipelineError: the savepoint cannot continue as this plan; raised here or by `chains`.
    """

    def __init__(
        self,
        before: Topology,
        saved: Sequence[Saved],
        plan: Plan,
        key_groups: int,
        allow_dropped: bool,
        written: Written | None,
    ) -> None:
        self.obstacle = ""
        self._topology = before
        self._before = before.subtasks
        self._saved = saved_subtasks(before, saved)
        self._plan = plan
        self._key_groups = key_groups
        self._allow_dropped = allow_dropped
        self._written = written
        self._had = _tasks_of_operators(before.subtasks)
        self._has = _tasks_of_operators(plan.subtasks)
        self._finished: dict[int, bool] = {}
        self._marks: dict[int, Sequence[int | None]] = {}
        """The watermark from which each input of a converted task starts, by task."""
        self._passed: dict[int, int | None] = {}
        """The most recent watermark that was passed on to each channel of the new plan whose sender is converted."""
        self._check_sources()
        if not allow_dropped:
            self._check_dropped()
        self._sent = None if written is None else SentRows(written, self._row_files(), plan)
        self._place: Any = None
        self._shares: dict[int, Share] = {}
        """The shares of old tasks in the tasks of the current place: operators and inputs."""

        for task in plan.subtasks.tasks:
            self._finished[task.index] = self._stays_finished(task)

    def _stays_finished(self, task: Task) -> bool:
        """Return whether a task has nothing left to do: it had finished, or it is new and reads only ended inputs.

        Raises:
            PipelineError: the task could never finish.
        """
        olds = self._contributors(task)
        over = all(saved.cut.finished for saved in olds)
        inputs = self._plan.subtasks.inputs(task.index)
        if any(channel.source == OUTSIDE for channel in inputs):
            return over and bool(olds)
        if not all(self._has_ended(channel.source) for channel in inputs):
            if olds and over:
                raise PipelineError(
                    f"operator {task.operators[0]!r} had finished at the savepoint but now has an input that "
                    f"has not ended: give the operator a new name and pass {ALLOW}"
                )
            return False
        senders = [channel.source for saved in olds for channel in self._before.inputs(saved.task.index)]
        if not over and not all(sender == OUTSIDE or self._saved[sender].cut.finished for sender in senders):
            raise PipelineError(
                f"all inputs of operator {task.operators[0]!r} have ended, but at the savepoint it was waiting "
                "for an input that was removed, so it would never finish: keep that input, or give the "
                f"operator a new name and pass {ALLOW}"
            )
        return over

    def chains(self) -> dict[str, Sequence[bytes]]:
        """Return, for each task of the new plan, the parts of its first snapshot that follow the cut."""
        chains: dict[str, Sequence[bytes]] = {task.name: self._chain(task) for task in self._plan.subtasks.tasks}
        return grouped_chains(self._plan.topology, chains, self._finished)

    def _chain(self, task: Task) -> Sequence[bytes]:
        chain = self._plan.subtask_chain(task.index)
        olds = self._contributors(task)
        if isinstance(chain, FusedChain):
            if olds:
                self._fill(chain, task, olds)
                self._settle(chain)
            inputs = self._plan.subtasks.inputs(task.index)
            ended = [number for number, channel in enumerate(inputs) if self._has_ended(channel.source)]
            chain.changed(self._saved[0].cut.epoch, ended, [self._passed.get(channel.id) for channel in inputs])
            self._marks[task.index] = chain.marks
            for ordinal, channel in enumerate(self._plan.subtasks.outputs(task.index)):
                self._passed[channel.id] = chain.passed(ordinal)
        return whole(chain)

    def _contributors(self, task: Task) -> list[Saved]:
        indices = {index for name in task.operators for index in self._had.get(name, ())}
        return [self._saved[index] for index in sorted(indices)]

    def _row_files(self) -> Sequence[Sequence[Sequence[bytes]]]:
        """Return the files of each old task from which its rows are read."""
        return [saved.files for saved in self._saved]

    # Chains.

    def _fill(self, chain: FusedChain, task: Task, olds: Sequence[Saved]) -> None:
        fresh, _ = read(whole(self._plan.subtask_chain(task.index)))
        shares = [self._known_share(task, saved, fresh) for saved in olds]
        if any(_is_new(stage, operator_of(stage.name, task), share) for stage in chain.stages for share in shares):
            # A new stage must learn how far its input is, so those before it pass on their watermarks again.
            shares = [replace(share, header={**share.header, "names": ()}) for share in shares]
        numbers = max(share.header["numbers"] for share in shares)
        header = {**fresh, "stages": dict(fresh["stages"]), "counts": {}, "numbers": numbers, "marks": []}
        fragments: Fragments = {}
        continued: set[int] = set()
        for stage in chain.stages:
            name = operator_of(stage.name, task)
            own = [share for share in shares if name in share.saved.task.operators]
            same = self._same_parallelism(name)
            place = self._has[name].index(task.index)
            if same:
                own = [share for share in own if share.saved.task.index == self._had[name][place]]
            continued.update(share.saved.task.index for share in own)
            marks = [_marks(stage, name, share) for share in own]
            header["marks"].append([least(received for received, _ in marks), least(passed for _, passed in marks)])
            headers: Sequence[dict[str, Any]] = [_inherited(stage, name, share) for share in own]
            if all(headers):
                headers = stage.rewired(headers, self._origins(task, own, fresh))
            if own:
                header["stages"][stage.name] = headers[0] if same else stage.merge_headers(headers)
            if own and place == 0 or same:
                header["counts"][stage.name] = _sum(share.header["counts"].get(stage.name, {}) for share in own)
            self._gather(stage, name, place, own, same, fragments)
        header["merge"] = self._merged(task, shares, header)
        header["stages"] = {name: fields for name, fields in header["stages"].items() if fields}
        self._restore(chain, header, fragments)
        self._renumber(chain, len(continued) > 1)

    def _restore(self, chain: FusedChain, header: dict[str, Any], fragments: Fragments) -> None:
        parts = [table_part(group, fragments[group]) for group in sorted(fragments)]
        chain.restore([header_part(header), *parts])

    def _renumber(self, chain: FusedChain, mixed: bool) -> None:
        chain.renumber(mixed)
        timers = (table for stage in chain.stages for table in stage.tables() if isinstance(table, TimerTable))
        if mixed and any(table.values for table in timers):
            self.obstacle = "timers of several tasks were numbered again"

    def _settle(self, chain: FusedChain) -> None:
        """Store what the tables had sent, where the new code derives something else."""
        tables = [stage for stage in chain.stages if isinstance(stage, RowStage)]
        known = any(stage.unsettled.values for stage in tables)
        if self._sent is not None:
            self._sent.settle(chain)
        if known or any(stage.unsettled.values for stage in tables):
            self.obstacle = "a table has rows that were sent with other values than the code derives"

    def _known_share(self, task: Task, saved: Saved, fresh: dict[str, Any]) -> Share:
        """Return `_share`, which is the same for all tasks of an operator that have the same inputs."""
        place = task.operators, tuple(fresh["senders"])
        if place != self._place:
            self._place, self._shares = place, {}
        index = saved.task.index
        if index not in self._shares:
            self._shares[index] = self._share(task, saved, fresh)
        return self._shares[index]

    def _share(self, task: Task, saved: Saved, fresh: dict[str, Any]) -> Share:
        """Return the part of an old task's state that the operators of the new task inherit.

        This part is restored, file by file, in a separate chain.
        """
        scratch = self._plan.subtask_chain(task.index)
        known = (
            {name for stage in scratch.stages for name in stage.loaders()} if isinstance(scratch, FusedChain) else ()
        )
        for file in saved.files:
            header, fragments = read(file)
            share_header = {**fresh, "full": header["full"], "numbers": header["numbers"], "counts": header["counts"]}
            share_header["stages"] = {**fresh["stages"], **header["stages"]}
            share_header["kinds"], share_header["meanings"] = header["kinds"], header.get("meanings", {})
            share_header["before"] = header.get("before", {})
            parts = [
                table_part(group, kept)
                for group, tables in fragments.items()
                if (kept := {name: pieces for name, pieces in tables.items() if name in known})
            ]
            scratch.restore([header_part(share_header), *parts])
        last, _ = read(saved.files[-1])
        header, fragments = read(whole(scratch))
        kept = {name: last[name] for name in ("merge", "marks", "keyless", "senders") if name in last}
        kept["names"] = last.get("names", saved.task.operators)  # earlier versions did not write them
        return Share(saved, {**header, **kept}, fragments)

    def _gather(
        self, stage: Stage, name: str, place: int, own: Sequence[Share], same: bool, fragments: Fragments
    ) -> None:
        """Add those fragments of a stage's tables that belong to task number `place` of its operator."""
        tables = set(stage.loaders()).difference(stage.replicated)
        for group, group_tables in own[0].fragments.items() if own else ():
            for table in stage.replicated:
                if table in group_tables:  # every task has the whole table, so the copy of the first task is enough
                    fragments.setdefault(group, {}).setdefault(table, []).extend(group_tables[table])
        parallelism = len(self._has[name])
        without_key = key_group(None, self._key_groups)
        for share in own:
            for group, group_tables in share.fragments.items():
                kept = {table: parts for table, parts in group_tables.items() if table in tables}
                if not kept:
                    continue
                if not stage.moves and (stage.name not in share.header["keyless"]) != stage.keyed:
                    was, now = ("by key", "without a key")[:: -1 if stage.keyed else 1]
                    raise PipelineError(
                        f"operator {name!r} kept its state {was} at the savepoint, and would look for it {now}: "
                        f"give the operator a new name and pass {ALLOW}"
                    )
                if not (same or self._plan.keyed(name)):
                    if not stage.moves:
                        raise PipelineError(
                            f"operator {name!r} keeps state per task, so its parallelism cannot change from "
                            f"{len(self._had[name])} to {parallelism}; keep the parallelism, or give the operator "
                            f"a new name and pass {ALLOW}"
                        )
                    group = without_key
                if same or task_of_group(group, parallelism, self._key_groups) == place:
                    into = fragments.setdefault(group, {})
                    for table, parts in kept.items():
                        into.setdefault(table, []).extend(parts)

    def _same_parallelism(self, name: str) -> bool:
        return len(self._had.get(name, ())) == len(self._has[name])

    def _merged(self, task: Task, shares: Sequence[Share], fresh: Mapping[str, Any]) -> dict[str, Any]:
        """Continue event time: each input starts from the least time reached by the inputs that it continues."""
        merge = Merge.rewired([share.header["merge"] for share in shares], self._origins(task, shares, fresh))
        ended = [self._has_ended(channel.source) for channel in self._plan.subtasks.inputs(task.index)]
        return {**merge, "ended": ended}

    def _origins(self, task: Task, olds: Sequence[Share], fresh: Mapping[str, Any]) -> Origins:
        """Return the inputs of old tasks that each input of a new task continues.

        An input continues the old inputs from the same operators. If the number of tasks that perform these operators
        is unchanged, it continues only the inputs from the task with the same number. If its operators are new, it
        continues the old inputs from operators that no longer send to this task.
        """
        inputs = self._plan.subtasks.inputs(task.index)
        before = [
            (place, number, channel)
            for place, share in enumerate(olds)
            for number, channel in enumerate(self._before.inputs(share.saved.task.index))
        ]
        origins: list[list[tuple[int, int]]] = []
        for channel, sender in zip(inputs, fresh["senders"], strict=True):
            by_task: dict[tuple[int, int], dict[tuple[int, int], str]] = {}
            for place, number, old in before:
                if self._continues(channel, old):
                    was = olds[place].header["senders"][number]
                    by_task.setdefault((place, old.source), {})[place, number] = was
            siblings = {each for each, other in zip(fresh["senders"], inputs) if other.source == channel.source}
            origins.append([each for was in by_task.values() for each in _from_same_output(sender, siblings, was)])
        continued = {each for listed in origins for each in listed}
        others = [(place, number) for place, number, _ in before if (place, number) not in continued]
        return [each or others for each in origins]

    def _continues(self, channel: Channel, old: Channel) -> bool:
        """Return whether a channel's sender is, or succeeds, the task that sent the records of the old channel."""
        topology, before = self._plan.subtasks, self._before
        if OUTSIDE in (channel.source, old.source):
            sources = topology.tasks[channel.target].operators[0], before.tasks[old.target].operators[0]
            return channel.source == old.source and channel.partition == old.partition and sources[0] == sources[1]
        sender, was = topology.tasks[channel.source], before.tasks[old.source]
        both = [name for name in sender.operators if name in was.operators]
        if not both:
            return False
        places, had = self._has[both[0]], self._had[both[0]]
        return len(places) != len(had) or places.index(sender.index) == had.index(was.index)

    # Cuts.

    def cuts(self, stores: Mapping[str, tuple[int, int]]) -> dict[str, Cut]:
        """Return the cut at which each task of the new plan begins, by task; `chains` must have been called.

        Args:
            stores: (rows, digest) of each store, by the name of the subtask that writes to it.
        """
        cuts: dict[str, Cut] = {task.name: self._cut(task, stores) for task in self._plan.subtasks.tasks}
        return grouped_cuts(self._plan.topology, cuts)

    def positions(self) -> dict[tuple[str, int], int]:
        """Return the position from which each partition is read, by source and partition."""
        return {partition: position for partition, (position, _) in self.places().items()}

    def places(self) -> dict[tuple[str, int], tuple[int, Mark | None]]:
        """Return the position from which each partition is read, and its mark, by source and partition."""
        return {
            (task.operators[0], channel.partition): (
                self._partition(task.operators[0], channel.partition)[0],
                self._mark_of(task.operators[0], channel.partition),
            )
            for task in self._plan.subtasks.tasks
            for channel in self._plan.subtasks.inputs(task.index)
            if channel.source == OUTSIDE
        }

    def _cut(self, task: Task, stores: Mapping[str, tuple[int, int]]) -> Cut:
        topology = self._plan.subtasks
        epoch = self._saved[0].cut.epoch
        finished = self._finished[task.index]
        inputs: dict[int, tuple[int, int, bool]] = {}
        for channel in topology.inputs(task.index):
            if channel.source == OUTSIDE:
                position, digest, ended = self._partition(task.operators[0], channel.partition)
                # A partition that had ended reports its end again, unless its task had finished.
                inputs[channel.id] = (position - (ended and not finished), digest, finished)
            else:
                inputs[channel.id] = (0, 0, self._has_ended(channel.source))
        # A task that chooses its inputs by their watermarks would otherwise wait for the next one on a quiet input.
        marks: dict[int, tuple[int | None, bool]] = {
            channel.id: (mark_ns, False)
            for channel, mark_ns in zip(topology.inputs(task.index), self._marks.get(task.index, ()))
            if channel.source != OUTSIDE and mark_ns is not None
        }
        outputs: dict[int, tuple[int, int]] = {
            channel.id: stores[task.name] for channel in topology.outputs(task.index) if channel.target == OUTSIDE
        }
        places: dict[int, Mark] = {
            channel.id: place
            for channel in topology.inputs(task.index)
            if channel.source == OUTSIDE and (place := self._mark_of(task.operators[0], channel.partition)) is not None
        }
        last_ns = max(saved.cut.last_ns for saved in self._saved)
        return Cut(epoch, inputs, outputs, last_ns, finished, marks, places)

    def _has_ended(self, source: int) -> bool:
        return source != OUTSIDE and self._finished[source]

    def _partition(self, source: str, partition: int) -> tuple[int, int, bool]:
        before = self._channel_of(source, partition)
        return (0, 0, False) if before is None else before[0].inputs[before[1]]

    def _mark_of(self, source: str, partition: int) -> Mark | None:
        before = self._channel_of(source, partition)
        return None if before is None else before[0].places.get(before[1])

    def _channel_of(self, source: str, partition: int) -> tuple[Cut, int] | None:
        """Return the cut of the task that has read a partition, and the partition's channel in it."""
        for index in self._had.get(source, ()):
            for channel in self._before.inputs(self._before.tasks[index].index):
                if channel.source == OUTSIDE and channel.partition == partition:
                    return self._saved[index].cut, channel.id
        return None

    # Refusals.

    def _check_sources(self) -> None:
        before, now = _partitions(self._before), _partitions(self._plan.subtasks)
        asking = {node.name for node in self._plan.operators if node.kind == "source" and node.subject.asks_partitions}
        for source, count in before.items():
            if source in now and now[source] > count and source in asking:
                continue  # new partitions begin at their first element
            if source in now and now[source] != count:
                raise PipelineError(
                    f"the number of partitions of source {source!r} was {count} at the savepoint and is "
                    f"{now[source]} now; keep the number of partitions, or give the source a new name and pass {ALLOW}"
                )

    def _check_dropped(self) -> None:
        for source in _partitions(self._before):
            if source not in self._has:
                raise PipelineError(_dropped(f"positions of source {source!r}"))
        known: set[str] = set()
        for task in self._plan.subtasks.tasks:
            chain = self._plan.subtask_chain(task.index)
            if isinstance(chain, FusedChain):
                known |= {name for stage in chain.stages for name in stage.loaders()}
        for saved in self._saved:
            for file in saved.files:
                for tables in read(file)[1].values():
                    for table, parts in tables.items():
                        if table not in known and any(map(_says_something, parts)):
                            raise PipelineError(_dropped(f"state {table!r} of operator {table.partition(':')[0]!r}"))


def operator_of(stage: str, task: Task) -> str:
    """Return the operator that a stage belongs to; a stage may be only a part of its operator ("op.hold")."""
    return stage if stage in task.operators else stage.rpartition(".")[0]


def _is_added(stage: Stage, operator: str, share: Share) -> bool:
    """Return whether a stage orders the records of an operator that did not order them in an old task."""
    return isinstance(stage, HoldStage) and operator in share.marks and stage.name not in share.marks


def _is_new(stage: Stage, operator: str, share: Share) -> bool:
    """Return whether an old task did not have a stage, nor its operator before its records were ordered."""
    return stage.name not in share.marks and not _is_added(stage, operator, share)


def _inherited(stage: Stage, operator: str, share: Share) -> dict[str, Any]:
    """Return the header of a stage in an old task; records that were late for its operator are so for a new order."""
    if _is_added(stage, operator, share):
        return {"mark": share.marks[operator][0]}
    inherited: dict[str, Any] = share.header["stages"].get(stage.name, {})
    return inherited


def _marks(stage: Stage, operator: str, share: Share) -> Sequence[int | None]:
    """Return the watermarks that a stage had received and passed on in an old task."""
    if _is_added(stage, operator, share):
        received, _ = share.marks[operator]
        return received, received
    return share.marks.get(stage.name, (None, None))


def _dropped(what: str) -> str:
    return (
        f"the savepoint has {what}, which this pipeline does not have: state is looked up by name, so restore "
        f"the names of renamed operators, or run with {ALLOW} to drop this state"
    )


def _says_something(fragment: bytes) -> bool:
    """Return whether a table fragment contains more than a list of deleted keys."""
    decoded = decode(fragment)
    return not (type(decoded) is list and not any(decoded[:-1]))


def _tasks_of_operators(topology: Topology) -> dict[str, list[int]]:
    """Return the indices of each operator's tasks in ascending order, by operator."""
    indices: dict[str, list[int]] = {}
    for task in topology.tasks:
        for name in task.operators:
            indices.setdefault(name, []).append(task.index)
    return indices


def _partitions(topology: Topology) -> dict[str, int]:
    """Return the number of partitions of each source, by source."""
    counts: dict[str, int] = {}
    for channel in topology.channels:
        if channel.source == OUTSIDE:
            name = topology.tasks[channel.target].operators[0]
            counts[name] = counts.get(name, 0) + 1
    return counts


def read(parts: Iterable[bytes]) -> tuple[dict[str, Any], Fragments]:
    """Return the header and the fragments of one snapshot."""
    header: dict[str, Any] = {}
    fragments: Fragments = {}
    for part in parts:
        part_header, tables = read_part(part)
        if part_header is not None:
            header = part_header
        elif tables:
            fragments[decode(part)[1]] = tables
    return header, fragments


def whole(chain: Chain) -> Sequence[bytes]:
    """Return the parts of a full snapshot of a chain."""
    job = chain.snapshot(True)
    while not job.step(KEYS_PER_STEP):
        continue
    return job.parts()


def _from_same_output(
    sender: str, siblings: Collection[str], was: Mapping[tuple[int, int], str]
) -> Sequence[tuple[int, int]]:
    """Return the inputs from one old task that an input continues: those from the same output of an operator.

    If there are none, return those that no other input from the same task continues or, failing that, all of them.

    Args:
        siblings: the outputs that the other inputs from the same task come from.
        was: the output that each input from the old task came from.
    """
    same = [each for each, output in was.items() if output == sender]
    return same or [each for each, output in was.items() if output not in siblings] or list(was)


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for reason, count in each.items():
            total[reason] = total.get(reason, 0) + count
    return total
