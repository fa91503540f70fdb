"""Drives the three tasks of the keyed count in one process, one read at a time: real sockets, frames, log and store.

    python -m benchmarks.costs.budget_drive parts|whole BATCH BATCHES

*parts*: what each part of the work takes per read (`budget_parts`).  *whole*: the same with no clock inside.  Before it
looks, a task waits until its frame has arrived: waiting is in no figure.  It prints one JSON object: task → part → µs.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import zmq

from benchmarks.costs import budget_parts
from benchmarks.costs.budget_parts import TASKS
from benchmarks.harness import runs
from benchmarks.jobs.bare import GC_THRESHOLD
from benchmarks.peers.programs import inputs
from causal.config import JobConfig
from causal.cut import Cut
from causal.events import PeerUp
from causal.ids import OUTSIDE
from causal.shell import driver as shell
from causal.shell.clock import SystemEnvironment
from causal.shell.disk import Disk
from causal.shell.driver import TaskDriver
from causal.shell.transport import Transport
from causal.task.task import TaskProtocol
from operators.builder.loading import load
from operators.engine.plan import Plan, plan

Part = TypeVar("Part")
WARM_BATCHES = 32
SLOWEST_SHARE = 0.2
"""Share of the batches, the slowest, that is left out: a page was new, or something else had emptied the caches."""
ARRIVES_WITHIN_MS = 5_000
MEMORY_BYTES_MAX = 1 << 30
"""No checkpoint truncates the in-flight log here, and spilling is not what is measured."""


class Driven:
    """One task with its sockets, disk and store."""

    def __init__(self, graph: Plan, config: JobConfig, index: int, place: Path, closing: ExitStack) -> None:
        topology = graph.topology
        context: zmq.Context[Any] = zmq.Context(io_threads=1)
        closing.callback(context.destroy, 0)
        self.poller = zmq.Poller()
        self.transport = Transport(context, f"ipc://{place}/{index}", self.poller)
        disk = Disk(place, topology.tasks[index].name, 1, place / "spill")
        self.poller.register(disk.wake, zmq.POLLIN)
        task = topology.tasks[index].index
        protocol = TaskProtocol(
            topology, task, 1, config, graph.chain(index), SystemEnvironment(), Cut(), [], _refuse
        )  # fmt: skip
        self.driver = TaskDriver(
            protocol,
            config.run,
            self.transport,
            disk,
            {c.id: graph.store(c, place) for c in topology.outputs(task) if c.target == OUTSIDE},
            {c.id: graph.reader(c, place, time.monotonic_ns()) for c in topology.inputs(task) if c.source == OUTSIDE},
            _heard,
        )
        closing.callback(self.driver.close)

    def idle_after(self, wait_ms: int) -> None:
        """Work until there is nothing left to do."""
        self.poller.poll(wait_ms)
        self.driver.work(dict(self.poller.poll(0)))
        while not self.driver.task.idle:
            self.driver.work(dict(self.poller.poll(0)))


def _refuse(line: str) -> None:
    raise runs.RunFailed(f"a task complains: {line}")


def _heard(kind: str, facts: Mapping[str, Any]) -> None:
    """Ignores reports: there is no supervisor."""


class Driving:
    """All three, connected; `step` takes one read through them."""

    def __init__(self, batch: int, place: Path, closing: ExitStack) -> None:
        settings = {"count": str(1 << 40), "partitions": "1", "parallelism": "1", "out": str(place / "out.db")}
        config = JobConfig(
            "budget", "budget", str(runs.KEYED_COUNT), settings=settings, batch_elements_max=batch,
            inflight_memory_bytes_max=MEMORY_BYTES_MAX,
        )  # fmt: skip
        inputs.table()
        graph = plan(load(runs.KEYED_COUNT, settings), config)
        self.tasks = [Driven(graph, config, index, place, closing) for index in range(len(TASKS))]
        for index, driven in enumerate(self.tasks[:-1]):
            driven.transport.dial(index + 1, self.tasks[index + 1].transport.endpoint)
        for index, driven in enumerate(self.tasks):
            for other in (index - 1, index + 1):
                if 0 <= other < len(self.tasks):
                    driven.driver.feed(PeerUp(other, 1))
        for driven in reversed(self.tasks):
            driven.driver.start()
        self._look_ns = budget_parts.look_ns()
        for _ in range(WARM_BATCHES):
            for driven in self.tasks:
                driven.idle_after(20) if driven is not self.tasks[0] else self._source(20)

    def _source(self, wait_ms: int = 0) -> None:
        """One event: the source has read ahead, so there is always another one to perform."""
        source = self.tasks[0]
        source.driver.work(dict(source.poller.poll(wait_ms)))

    def step(self, clock: budget_parts.PartClock | None) -> list[dict[str, float]]:
        """One read through all tasks; µs by part of each."""
        return [self._timed(number, clock) for number in range(len(TASKS))]

    def _timed(self, number: int, clock: budget_parts.PartClock | None) -> dict[str, float]:
        """Runs the task until something has been delivered to it; a credit that comes before is part of the work."""
        task = self.tasks[number]
        took: Counter[str] = Counter()
        before = self.delivered()[number]
        while self.delivered()[number] == before:
            if number and not task.poller.poll(ARRIVES_WITHIN_MS):
                raise runs.RunFailed(f"no frame came to the {TASKS[number]} within {ARRIVES_WITHIN_MS} ms")
            if clock is not None:
                clock.start()
            began_ns = time.thread_time_ns()
            if number:
                task.idle_after(0)
            else:
                self._source()
            took_us = (time.thread_time_ns() - began_ns - self._look_ns) / 1000
            if clock is not None:
                clock.stop()
                took.update(clock.taken())
            else:
                took["whole"] += took_us  # type: ignore[assignment]
        return dict(took)

    def delivered(self) -> list[int]:
        """Returns how many elements each task has been given."""
        return [sum(channel.delivered for channel in task.driver.task.inputs) for task in self.tasks]


def typical(samples: list[dict[Part, float]]) -> dict[Part, float]:
    """Mean by part over the samples without the slowest."""
    kept = sorted(samples, key=lambda sample: sum(sample.values()))[: max(1, round(len(samples) * (1 - SLOWEST_SHARE)))]
    parts = dict.fromkeys(part for sample in kept for part in sample)
    return {part: sum(sample.get(part, 0.0) for sample in kept) / len(kept) for part in parts}


def run(parts: bool, batch: int, batches: int) -> dict[str, dict[str, float]]:
    """Task → part (or `whole`) → µs per read.

    Raises:
        RunFailed: what was read did not come out.
    """
    clock = None
    if parts:
        clock = budget_parts.PartClock()
        budget_parts.install(clock)
        clock.calibrate()
    shell.TURNS_PER_POLL = 1  # a source would perform eight reads, and there would be eight to a frame
    with tempfile.TemporaryDirectory(prefix="causal-budget-") as name, ExitStack() as closing:
        driving = Driving(batch, Path(name), closing)
        gc.set_threshold(GC_THRESHOLD, 20, 100)
        gc.freeze()
        before = driving.delivered()
        began_cpu_ns = time.process_time_ns() - time.thread_time_ns()
        samples = [driving.step(clock) for _ in range(batches)]
        others_us = (time.process_time_ns() - time.thread_time_ns() - began_cpu_ns) / 1000 / batches
        delivered = [after - was for after, was in zip(driving.delivered(), before, strict=True)]
        if min(delivered) < batch * (batches - 1):
            raise runs.RunFailed(f"of {batch * batches} records, {delivered} came to source, count and sink")
    took = {task: typical([each[place] for each in samples]) for place, task in enumerate(TASKS)}
    return took | {"threads": {"sockets": max(0.0, others_us)}}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1] == "parts", int(sys.argv[2]), int(sys.argv[3]))))
