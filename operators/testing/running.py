"""Execution of a pipeline in this process, from lists to lists, with crashes (`run`), and a list of crashes to try."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.errors import PipelineError
from causal.topology import DEAD_LETTERS
from operators.builder.drawing import rows_html
from operators.builder.loading import load, modules_first
from operators.builder.pipeline import Pipeline
from operators.capture.install import install
from operators.engine.plan import Plan, plan
from operators.graph import Edge
from operators.records.seconds import seconds_of
from operators.testing.frames import without_our_frames
from operators.testing.inputs import partitions_of
from operators.testing.outside import RecordsSink, documents_in, records_in
from operators.testing.world import World

_FIXED = (
    "run", "name", "pipeline", "settings", "guarantee", "sharing_depth", "verify_replay", "record", "transport",
    "standbys",
)  # fmt: skip

CLOCK_S_MAX = 9e9
"""A time in 2255, shortly before a 64-bit number of ns overflows."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The results of a run.

    Attributes:
        rows: the records that reached each sink, by sink name; those of several tasks are concatenated. The records
            sent to the dead-letter output are under "dead-letters". A sink of a table receives (key, new value), where
            None deletes the row.
        counts: operator → reason → number of elements (late, expired …).
        recoveries: the number of crashes from which the run recovered.
        determinant_bytes: the size in bytes of the logs written, by kind.
        elements: task → number of records that it received.
        clock_s: the wall-clock time at the end.
    """

    rows: Mapping[str, list[Any]]
    counts: Mapping[str, Mapping[str, int]]
    recoveries: int
    determinant_bytes: Mapping[str, int]
    elements: Mapping[str, int]
    clock_s: float

    def _repr_html_(self) -> str:
        """Return each sink's rows as a table, for display in a notebook."""
        return rows_html(self.rows)

    def __getitem__(self, sink: str) -> list[Any]:
        """Return the rows of one sink.

        Raises:
            KeyError: there is no such sink; the error names the existing ones.
        """
        if sink not in self.rows:
            raise KeyError(f"sink {sink!r} does not exist; the sinks are {', '.join(self.rows)}")
        return self.rows[sink]


@without_our_frames
def run(
    pipeline: Pipeline | str | Path,
    inputs: Mapping[str, Sequence[Any]] | None = None,
    *,
    crash: Mapping[str, int | Sequence[int]] | None = None,
    seed: int = 0,
    clock_s: float = 0.0,
    checkpoint_every: int | None = None,
    settings: Mapping[str, str] | None = None,
    batch: int = 1,
    **config: Any,
) -> TrialResult:
    """Run a pipeline to its end in this process, on virtual time.

    Args:
        pipeline: a pipeline that has been built, or the path of a pipeline file.
        inputs: source → its records, or a list with one such list for each of its partitions. Use `At(seconds, record)`
            for a record that becomes available only later. A bounded generated source may be left out; its own records
            are then read.
        crash: task → the number of received records after which it dies, or several such numbers; the task is then
            restored from its last checkpoint and replays.
        seed: the seed for everything that can vary: which task runs, random numbers, when checkpoints are taken.
        clock_s: the initial wall-clock time; the clock moves only when no task has anything to do.
        checkpoint_every: the number of records read between two checkpoints; 0: none; None: the seed decides.
        settings: the values of `--set`, if `pipeline` is a path.
        batch: the maximum number of records per event; with 1, a crash happens exactly after the specified record.
        config: other fields of `causal.config.JobConfig`, such as `on_error="dead-letter"`.

    Raises:
        PipelineError: the pipeline or an input is wrong, or a crash is impossible or never happened.
        OperatorFailed: as in a job; also raised if the final state cannot be checkpointed.
        ReplayDivergence: as in a job: a replay differed from what other tasks had already received, because an operator
            is not deterministic.
    """
    settings = settings or {}
    _check(pipeline, {"settings": settings}, clock_s, checkpoint_every)
    built = pipeline if isinstance(pipeline, Pipeline) else load(Path(pipeline), settings)
    with modules_first(built):
        world = world_of(built, inputs or {}, crash or {}, seed, clock_s, checkpoint_every, batch, config)
        world.begin()
        world.run()
        for task, counts in world.crash.items():
            if counts:
                received = result_of(world).elements[task]
                raise PipelineError(
                    f"the crash of {task!r} at {counts[0]} never happened, because the task received {received} records"
                )
        result = result_of(world)
        world.check_state()
    return result


@without_our_frames
def every_crash(
    pipeline: Pipeline | str | Path, inputs: Mapping[str, Sequence[Any]] | None = None, **options: Any
) -> list[dict[str, int]]:
    """Return every possible single crash: one after each record that each task receives in a run without crashes.

    @pytest.mark.parametrize("crash", every_crash(pipeline, inputs), ids=str)
    """
    result = run(pipeline, inputs, **options)
    return [{task: number} for task, count in result.elements.items() for number in range(1, count + 1)]


def world_of(
    pipeline: Pipeline,
    inputs: Mapping[str, Sequence[Any]],
    crash: Mapping[str, int | Sequence[int]],
    seed: int,
    clock_s: float,
    checkpoint_every: int | None,
    batch: int,
    config: Mapping[str, Any],
) -> World:
    """Return the world of a run that has not begun.

    Raises:
        PipelineError: as for `run`.
    """
    for name in _FIXED:
        if name in config:
            raise PipelineError(f"the test kit sets {name} itself; leave {name} out")
    _check(pipeline, {"inputs": inputs, "crash": crash}, clock_s, checkpoint_every)
    job_config = JobConfig.from_mapping(
        {
            **config,
            "run": "trial",
            "name": pipeline.name,
            "pipeline": "trial",
            "batch_elements_max": batch,
            "latency_target_ms": 0,  # sources return a test's records immediately
        },
        "run()",
    )
    install(job_config.hidden_nondeterminism)
    planned = plan(_with_kept_rows(pipeline), job_config)
    return World(
        planned, job_config, partitions_of(planned, pipeline.sources, inputs), _crashes(planned, crash), seed, clock_s,
        checkpoint_every,
    )  # fmt: skip


def _check(pipeline: object, by_name: Mapping[str, object], clock_s: object, checkpoint_every: object) -> None:
    if not isinstance(pipeline, (Pipeline, str, Path)):
        raise PipelineError(f"the pipeline is a {type(pipeline).__name__}; use a Pipeline, or the path of its file")
    for name, option in by_name.items():
        if not isinstance(option, Mapping):
            raise PipelineError(f"{name} is {option!r:.60}; use a dict")
    if isinstance(clock_s, bool) or not isinstance(clock_s, (int, float)) or not 0 <= clock_s < CLOCK_S_MAX:
        raise PipelineError(f"clock_s is {clock_s!r:.60}; use seconds since 1970, before 2255")
    if checkpoint_every is not None and (type(checkpoint_every) is not int or checkpoint_every < 0):
        raise PipelineError(f"checkpoint_every is {checkpoint_every!r:.60}; use a number of records, or 0 for none")


def _with_kept_rows(pipeline: Pipeline) -> Pipeline:
    """Return a copy of the pipeline in which the sinks keep their records; the original is not changed."""
    nodes = {
        node.ordinal: replace(node, subject=RecordsSink(node.subject) if node.kind == "sink" else node.subject)
        for node in pipeline.nodes
    }
    for node in nodes.values():
        node.edges = [_moved(edge, nodes) for edge in node.edges]
    clone = copy.copy(pipeline)
    clone._declared = pipeline._declared.replaced(nodes.values())
    return clone


def _moved(edge: Edge, nodes: Mapping[int, Any]) -> Edge:
    return replace(edge, source=nodes[edge.source.ordinal])


def _crashes(planned: Plan, crash: Mapping[str, int | Sequence[int]]) -> dict[str, list[int]]:
    crashes: dict[str, list[int]] = {}
    for task, at in crash.items():
        performer = planned.topology.performer(task)
        if performer is None:
            known = ", ".join(each.name for each in planned.topology.tasks)
            raise PipelineError(f"crash names the task {task!r}, but pipeline {planned.name!r} has {known}")
        counts = sorted([at] if isinstance(at, int) else at)
        if not counts or any(type(count) is not int or count < 1 for count in counts):
            raise PipelineError(f"crash of {task!r} is at {at!r}; use a number of records from 1, or several")
        crashes[performer.name] = sorted([*crashes.get(performer.name, ()), *counts])
    return crashes


def result_of(world: World) -> TrialResult:
    """Return the results of a world so far."""
    rows: dict[str, list[Any]] = {}
    for channel in sorted(world.stores):
        if world.topology.channels[channel].carries_requests:
            continue
        store = world.stores[channel]
        sink = store.task.rpartition("/")[0]
        kept = documents_in(store.rows) if sink == DEAD_LETTERS else records_in(store.rows)
        rows.setdefault(sink, []).extend(kept)
    counts: dict[str, Counter[str]] = {}
    determinant_bytes = Counter(world.logged)
    for process in world.processes.values():
        determinant_bytes.update(process.protocol.counters()["determinant_bytes"])
        for operator, reasons in process.chain.counts().items():
            counts.setdefault(operator, Counter()).update(reasons)
    return TrialResult(
        rows,
        {operator: dict(reasons) for operator, reasons in counts.items()},
        world.recoveries,
        dict(determinant_bytes),
        {process.protocol.name: process.chain.received for _, process in sorted(world.processes.items())},
        seconds_of(world.now_ns),
    )
