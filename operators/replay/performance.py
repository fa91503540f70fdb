"""A pipeline that is performed in this process from a checkpoint of its job, on input that the job has read (0042).

The whole pipeline is one cell, so each step runs to its end before the next one begins, and the rows are a function of
the state, the code and the steps. Clock readings and random numbers are functions of the steps, the checkpoint and the
names of operators. Two performances with the same steps therefore differ only where their code does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from causal.config import JobConfig
from causal.errors import PipelineError, Unavailable, invariant
from causal.ids import TaskIndex
from causal.ports import Output, Request
from causal.records.batch import LISTED, Chunk
from causal.records.values import decode
from causal.topology import Topology
from operators.builder.pipeline import Pipeline
from operators.capture.active import RUNNING
from operators.engine.chain import FusedChain
from operators.engine.fusion import fuse
from operators.engine.operator_chain import OperatorChain
from operators.engine.plan import Plan
from operators.kinds.process.outside_calls import AskStage
from operators.replay.answers import Answers, question, question_of_record
from operators.runtime.regrouping import Saved
from operators.runtime.rescaling import Rescaling
from operators.runtime.sent_rows import Written
from operators.sinks.contract.sink import Sink, encode_json
from operators.source import LONG_AGO_NS, PartitionReader, Source
from operators.stage.calls import Asking
from operators.stage.disk_state import located
from operators.stage.stages import Stage

CELL = TaskIndex(0)
TURN_NS = 1_000_000
"""The least time between two firings of timers, of which the second may have been set by the first."""
READ_S = 10.0
"""The time within which elements that the job has read must be readable again."""
AHEAD_ELEMENTS = 1_024
"""The elements that are read with those of a step, which may have few."""

NOT_ASKED = "asks the outside world, which would be asked twice; this pipeline cannot be performed next to its job"
NOT_READ = "cannot be read by anyone but its job; this pipeline cannot be performed next to its job"

Rows = Mapping[str, Sequence[bytes]]
"""The rows that a step has caused, by the subtask that would write them; dead letters are rows as well."""


@dataclass(frozen=True, slots=True)
class Step:
    """Elements of one partition that are performed together.

    Attributes:
        at_ns: the wall-clock time; timers that are due by then fire before.
        start, stop: the positions of the first element and after the last one.
        ends: whether the partition ends after them.
    """

    at_ns: int
    source: str
    partition: int
    start: int
    stop: int
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of a job, from which performances begin.

    Attributes:
        topology: the tasks that wrote it.
        written: loads the plan of these tasks, as `Rescaling` needs it.
    """

    epoch: int
    topology: Topology
    saved: Sequence[Saved]
    written: Written


class WholePlan(Plan):
    """A plan in which one task performs the whole pipeline, whatever its parallelism.

    Args:
        fused: the class of the chains of operators.
    """

    def __init__(self, pipeline: Pipeline, config: JobConfig, fused: type[FusedChain] = FusedChain) -> None:
        self._fused = fused
        super().__init__(pipeline, config, fuse(pipeline.nodes))

    def _grouped(self, subtasks: Topology) -> Topology:
        return Topology.grouped(subtasks, [("whole/0", tuple(task.index for task in subtasks.tasks))])

    def subtask_chain(self, subtask: int, ordinal: int = 0, fused: type[FusedChain] = FusedChain) -> OperatorChain:
        """Return a chain whose random numbers do not depend on the operators with which its operators are fused."""
        chain = super().subtask_chain(subtask, ordinal, self._fused)
        if isinstance(chain, FusedChain):
            chain.draw_as(self.subtasks.tasks[subtask].name.rpartition("/")[2])
        return chain


@dataclass(slots=True)
class _Input:
    """A partition: its ordinal among the inputs of the cell, how it is read, and whether it has ended."""

    ordinal: int
    source: Source
    reader: PartitionReader
    over: bool
    ahead: list[Any] = field(default_factory=list)
    """Records that were read with those of an earlier step."""
    ahead_from: int = 0


class _Services:
    """The services of a performance (`causal.ports.Services`); nothing is logged.

    Without answers, requests are refused.

    Each step is an epoch, so that random numbers are those of the other version again after a step in which one of them
    has drawn more.
    """

    def __init__(self, epoch: int, now_ns: int, answers: Answers | None) -> None:
        self.time_ns = now_ns
        self.steps = 0
        self._answers = answers
        self._seed = blake2b(f"checkpoint {epoch}".encode(), digest_size=16).digest()

    def now_ns(self) -> int:
        return self.time_ns

    def seed(self) -> bytes:
        return self._seed[:8] + self.steps.to_bytes(8, "big")

    def epoch(self) -> int:
        return self.steps

    def replaying(self) -> bool:
        """Return true, because side effects must not be repeated."""
        return True

    def call(self, ask: Callable[[], bytes]) -> bytes:
        return self._answered(ask, False)

    def user(self, kind: str, ask: Callable[[], bytes]) -> bytes:
        return self._answered(ask, True)

    def _answered(self, ask: Callable[[], bytes], raw: bool) -> bytes:
        if self._answers is None:
            raise PipelineError(f"an operator {NOT_ASKED}")
        invariant(isinstance(ask, Asking), "requests of user code are known by their content")
        asking = cast(Asking, ask)
        with RUNNING.suspended():
            answer = self._answers.answer(question(asking), ask, asking.arguments, raw)
        return b"" if answer is None else answer

    def window(self, operator: int, end_ns: int, intervals: Sequence[tuple[int, int]]) -> None:
        """Do nothing, because nothing is logged."""


class Performance:
    """The performance of a pipeline from a checkpoint.

    Args:
        job_directory: the directory of the job, whose input is read; nothing is written there.
        scratch: an empty directory for what the readers of sources write.
        answers: the answers of the outside world; without them, a pipeline that asks it is refused.
        fused: the class of the chains of operators.

    Raises:
        PipelineError: the pipeline cannot continue from the checkpoint, or cannot be performed outside its job.
        CausalError: its state cannot be loaded.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        config: JobConfig,
        checkpoint: Checkpoint,
        allow_dropped: bool,
        job_directory: Path,
        scratch: Path,
        answers: Answers | None = None,
        fused: type[FusedChain] = FusedChain,
    ) -> None:
        if answers is None:
            _check_calls(pipeline)
        self._job = job_directory
        self._scratch = scratch
        self._answers = answers
        planned = WholePlan(pipeline, located(config, scratch), fused)
        rescaling = Rescaling(
            checkpoint.topology, checkpoint.saved, planned, config.key_groups, allow_dropped, checkpoint.written
        )
        (parts,) = rescaling.chains().values()
        (cut,) = rescaling.cuts({task.name: (0, 0) for task in planned.subtasks.tasks}).values()
        self._chain = planned.chain(CELL)
        self._chain.restore(parts)
        self._services = _Services(checkpoint.epoch, cut.last_ns, answers)
        self._unanswered = self._chain.outstanding()
        """The requests of the checkpoint that have not been answered."""
        self._inputs: dict[tuple[str, int], _Input] = {}
        for ordinal, channel in enumerate(planned.topology.inputs(CELL)):
            name, source = planned.source_of(channel)
            if not source.lend(name, job_directory, scratch):
                raise PipelineError(f"source {name!r} {NOT_READ}")
            position, place = cut.inputs[channel.id][0], cut.places.get(channel.id)
            reader = planned.reader(channel, scratch, LONG_AGO_NS, position, place)
            self._inputs[name, channel.partition] = _Input(ordinal, source, reader, cut.inputs[channel.id][2])
        self._outputs = [
            None if channel.carries_requests else (planned.topology.account(channel), planned.sink_of(channel))
            for channel in planned.topology.outputs(CELL)
        ]
        self._asking = {stage.ordinal: stage for stage in self._chain.stages if isinstance(stage, AskStage)}

    @property
    def stages(self) -> Sequence[Stage]:
        """The stages of all operators."""
        return self._chain.stages

    def perform(self, step: Step) -> Rows:
        """Perform a step, and return the rows that it causes.

        A partition that the pipeline does not read, or that had ended before, is passed over.

        Raises:
            CausalError: the pipeline fails, as the job would.
        """
        rows: dict[str, list[bytes]] = {}
        self._services.steps += 1
        if self._unanswered:
            self._ask(self._unanswered, rows)
            self._unanswered = []
        self._pass_time(step.at_ns, rows)
        channel = self._inputs.get((step.source, step.partition))
        if channel is None or channel.over:
            return rows
        for first, chunk in self._read(step, channel):
            self._keep(self._chain.deliver(channel.ordinal, [chunk], first, self._services), rows)
        if step.ends:
            channel.over = True
            self._keep(self._chain.ended(channel.ordinal, self._services), rows)
        return rows

    def _pass_time(self, until_ns: int, rows: dict[str, list[bytes]]) -> None:
        """Move the clock, and fire the timers that are due on the way."""
        services = self._services
        until_ns = max(until_ns, services.time_ns)
        while (due_ns := self._chain.next_timer_ns()) is not None and due_ns <= until_ns:
            services.time_ns = min(max(due_ns, services.time_ns + TURN_NS), until_ns)
            self._keep(self._chain.fire(services.time_ns, services), rows)
            if services.time_ns == until_ns:
                break
        services.time_ns = until_ns

    def _read(self, step: Step, channel: _Input) -> Iterator[tuple[int, Chunk]]:
        """Yield the elements of a step with the positions at which they begin.

        Raises:
            Unavailable: the elements cannot be read again.
        """
        position, due_s = step.start, time.monotonic() + READ_S
        while position < step.stop:
            taken = position - channel.ahead_from
            if 0 <= taken < len(channel.ahead):
                records: Any = channel.ahead[taken : step.stop - channel.ahead_from]
                yield position, Chunk(LISTED, len(records), records)
                position += len(records)
                continue
            channel.source.lend(step.source, self._job, self._scratch)
            count = max(step.stop - position, 1 if channel.source.vectors else AHEAD_ELEMENTS)
            read = channel.reader.read(position, count)
            if read is not None and len(read.records):
                if type(read.records) is list:
                    channel.ahead, channel.ahead_from = read.records, position
                    continue
                yield position, Chunk(LISTED, len(read.records), read.records)
                position += len(read.records)
            elif read is not None and read.ended:
                return  # the code has fewer elements than the job has read
            elif time.monotonic() >= due_s:
                raise Unavailable(
                    f"source {step.source!r}, partition {step.partition}: position {position} cannot be read again"
                )
            else:
                time.sleep(min(0.1, channel.reader.ready_in_s(position)))

    def _keep(self, outputs: Sequence[Output], rows: dict[str, list[bytes]]) -> None:
        for ordinal, chunk in outputs:
            account = self._outputs[ordinal]
            if account is not None:
                rows.setdefault(account[0], []).extend(rows_in(account[1], chunk))
        if self._asking and (requests := self._chain.asked()):
            self._ask(requests, rows)

    def _ask(self, requests: Sequence[Request], rows: dict[str, list[bytes]]) -> None:
        """Answer the requests of `call` operators; one without an answer remains outstanding."""
        invariant(self._answers is not None, "a pipeline that asks is refused without answers")
        for request in requests:
            stage = self._asking[request.operator]
            arguments = decode(request.body)
            record, key = stage.request_of(request.number)
            asked = question_of_record(stage.name, key, record)
            body = self._answers.answer(  # type: ignore[union-attr]
                asked, partial(_asked, stage, request), arguments, may_wait=True
            )
            if body is not None:
                self._keep(self._chain.answer(request.operator, request.number, body, self._services), rows)


def _asked(stage: AskStage, request: Request) -> bytes:
    return stage.asker.perform(request.body)[1]


def _check_calls(pipeline: Pipeline) -> None:
    for node in pipeline.nodes:
        if node.kind == "call":
            raise PipelineError(f"{node.where}: operator {node.name!r} {NOT_ASKED}")


def rows_in(sink: Sink, chunk: Chunk) -> Sequence[bytes]:
    """Return each row of a chunk of rows as a JSON document."""
    body = bytes(chunk.body)
    if type(sink).shown_row is Sink.shown_row and not sink.upsert:
        return body.split(b"\n")[:-1]
    return [encode_json(sink.shown_row(body, index)).encode() for index in range(chunk.count)]
