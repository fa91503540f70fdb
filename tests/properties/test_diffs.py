"""Unchanged code gives no difference, ever: every example of the oracles, on its recorded input, performed twice.

So every operator, delivery, timer, window, call, table and join is performed from recorded steps and answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import cast

import pytest

from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import OperatorFailed, PipelineError
from causal.ids import TaskIndex
from causal.task.cone import ConeReplay
from causal.task.replay import TaskReplay
from causal.task.schedule import ScheduledEvent
from causal.topology import Channel
from operators.builder.pipeline import Pipeline
from operators.engine.operator_chain import OperatorChain
from operators.engine.plan import Plan, plan
from operators.replay import performance
from operators.replay.answers import REFUSE, Answers, Rule, Unanswered, create
from operators.replay.exact import Replay
from operators.replay.input_steps import Positions, positions_in
from operators.replay.performance import Checkpoint, Performance, Rows, Step, WholePlan
from operators.replay.recorded_answers import _answers, asked_in
from operators.replay.recorded_steps import Reader, partitions_of, recorded_steps
from operators.runtime.regrouping import Saved
from operators.source import Read
from operators.testing import running
from tests.members import sample
from tests.oracles.all import ORACLES
from tests.oracles.frame import examine
from tests.properties.test_replays import LATEST_NS, RecordedWorld

CASES = [case for name in sorted(ORACLES) for case in sample(product([name], range(200, 240)), 1)]
SECOND_NS = 1_000_000_000


class Listed:
    """A reader of the input of a simulated job."""

    def __init__(self, world: RecordedWorld, channel: int) -> None:
        self._partition = world.partitions[channel]

    def read(self, position: int, count: int) -> Read | None:
        read = self._partition.read(position, count, LATEST_NS)
        return None if read is None else Read(read[0], 0, read[1])

    def ready_in_s(self, position: int) -> float:
        return 0.0


class Cone:
    """An exact replay of a simulated job, as `recorded_answers` needs it."""

    def __init__(self, world: PerformedWorld, start: int) -> None:
        self.chains: dict[str, OperatorChain] = {}
        replays: dict[TaskIndex, TaskReplay] = {}
        for task in world.topology.tasks:
            cut, files = world.stored(task.index, start)
            chain = self.chains[task.name] = world.plan.chain(task.index)
            for parts in files:
                chain.restore(parts)
            replays[task.index] = TaskReplay(world.topology, task.index, world.config, chain, cut)
        self.cone = ConeReplay(world.topology, replays, world._log, world._elements)
        self._world = world

    @property
    def epoch(self) -> int:
        return self.cone.epoch

    def begin_epoch(self) -> None:
        self.cone.begin_epoch()

    def next(self) -> tuple[str, ScheduledEvent] | None:
        following = self.cone.next()
        return None if following is None else (self._world.topology.tasks[following[0]].name, following[1])

    def perform(self) -> None:
        self.cone.perform()


class PerformedWorld(RecordedWorld):
    """A run whose recording is performed twice when it has ended."""

    scratch: Path
    pipeline: Pipeline
    patch: pytest.MonkeyPatch
    rows = 0
    """The rows of all performances."""

    def stored(self, task: int, start: int) -> tuple[Cut, list[Sequence[bytes]]]:
        """Return the cut of a task at a checkpoint, and its files."""
        files = [self.snapshots[task, name][0] for name, _, _ in (self.files[task, start] if start else ())]
        return (Cut.unpack(files[-1][0]) if files else Cut()), [parts[1:] for parts in files]

    def _replay(self, tasks: Sequence[TaskIndex], start: int) -> None:
        if start not in (0, self.complete // 2):
            return
        last = min(process.protocol.cursor.epoch for process in self.processes.values()) - 1
        if last < start:
            return
        path = self.scratch / f"answers-{start}"
        path.unlink(missing_ok=True)
        asks = any(asked_in(each.log) for (_, epoch), each in self.epochs.items() if start <= epoch <= last)
        create(path, _answers(cast(Replay, Cone(self, start)), last) if asks else ())
        answers = [Answers(path, Rule(REFUSE), leads) for leads in (True, False)]
        try:
            once, again = (self._performance(start, each) for each in answers)
        except PipelineError:
            return  # a pipeline that cannot be performed outside its job
        elements = 0
        for step in self._steps(start, last):
            caused, failure = performed(once, step)
            answers[1].receive(answers[0].take())
            if isinstance(failure, Unanswered):
                return  # the comparison ends here
            assert performed(again, step)[0] == caused
            elements += step.stop - step.start
            PerformedWorld.rows += sum(map(len, caused.values()))
            if failure is not None:
                return

    def _performance(self, start: int, answers: Answers) -> Performance:
        saved = []
        for task in self.topology.tasks:
            cut, files = self.stored(task.index, start)
            if not files:
                job = self.plan.chain(task.index).snapshot(True)
                while not job.step(100):
                    pass
                files = [job.parts()]
                inputs: dict[int, tuple[int, int, bool]] = {
                    c.id: (0, 0, False) for c in self.topology.inputs(task.index)
                }
                outputs: dict[int, tuple[int, int]] = {c.id: (0, 0) for c in self.topology.outputs(task.index)}
                cut = Cut(0, inputs, outputs)
            saved.append(Saved(task, cut, tuple(tuple(bytes(part) for part in parts) for parts in files)))
        checkpoint = Checkpoint(start, self.topology, saved, lambda: nullcontext(self.plan))
        config = replace(self.config, processes="")
        self.patch.setattr(
            WholePlan, "reader", lambda whole, channel, *rest: Listed(self, self._channel(whole, channel))
        )
        return Performance(self.pipeline, config, checkpoint, False, self.scratch, self.scratch, answers)

    def _channel(self, whole: WholePlan, channel: Channel) -> int:
        """Return the channel of the same partition in the job."""
        name, _ = whole.source_of(channel)
        partitions = partitions_of(self.topology)
        return next(
            own.id
            for task in self.topology.tasks
            for ordinal, own in enumerate(self.topology.inputs(task.index))
            if partitions.get(task.name, {}).get(ordinal) == (name, channel.partition)
        )

    def _steps(self, start: int, last: int) -> list[Step]:
        cuts: dict[str, Cut] = {task.name: self.stored(task.index, start)[0] for task in self.topology.tasks}
        partitions = partitions_of(self.topology)
        at: Positions = positions_in(self.topology, cuts) if start else {}
        steps: list[Step] = []
        for epoch in range(start, last + 1):
            own = {task: self.epochs[self._index(task), epoch] for task in partitions}
            reached = positions_in(self.topology, {task: cast(Cut, each.reached) for task, each in own.items()})
            readers = [Reader(task, each.log, partitions[task]) for task, each in own.items()]
            began_ns = max([SECOND_NS, *(cut.last_ns for cut in cuts.values())]) + epoch * SECOND_NS
            steps += recorded_steps(readers, at, reached, began_ns, began_ns + SECOND_NS)
            at = reached
        return steps

    def _index(self, name: str) -> int:
        return next(task.index for task in self.topology.tasks if task.name == name)


def performed(one: Performance, step: Step) -> tuple[Rows, OperatorFailed | None]:
    """Perform a step, and return its rows or the error."""
    try:
        return one.perform(step), None
    except OperatorFailed as problem:
        return {"failed": [str(problem).encode()]}, problem


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_unchanged_code_gives_the_same_rows_on_every_recording(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def planned(pipeline: Pipeline, config: JobConfig) -> Plan:
        PerformedWorld.pipeline = pipeline
        return plan(pipeline, config)

    PerformedWorld.scratch, PerformedWorld.patch = tmp_path, monkeypatch
    monkeypatch.setattr(running, "plan", planned)
    monkeypatch.setattr(running, "World", PerformedWorld)
    monkeypatch.setattr(performance, "rows_in", lambda _, chunk: [bytes(chunk.body)])
    examine(name, seed)


def test_the_recordings_have_rows() -> None:
    if len(CASES) > 1:
        assert PerformedWorld.rows
