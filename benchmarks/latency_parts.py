"""What a document and a checkpoint of the inverted index cost, in CPU time, which other work hardly shifts.

    python -m benchmarks.latency_parts [--documents N] [--every N]

All tasks of `latency_index` run in this process, with their own sockets, frames, logs, disks and SQLite store.  One
document at a time goes through all of them; under `causal` a checkpoint is taken behind every few, and copies of the
tasks load it as standbys do.  The clock is the CPU time of the thread that runs the tasks; sockets and disks have
threads of their own, told as one.  Not in it: processes, which have caches of their own, and the supervisor.
It prints CPU ms as JSON: guarantee → part → mean, and `causal_over_none`, by document, with checkpoints and without.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import zmq

from benchmarks import latency_index, runs
from benchmarks.bare import GC_THRESHOLD
from benchmarks.latency_index import PARTITIONS
from causal.checkpointing import Cut
from causal.config import JobConfig
from causal.events import CheckpointAsked, CheckpointCompleted, PeerAt
from causal.ids import OUTSIDE
from causal.shell.clock import RealLive
from causal.shell.disk import Disk
from causal.shell.driver import TaskDriver
from causal.shell.transport import Transport
from causal.task import TaskProtocol
from operators.image import Image
from operators.loading import load
from operators.plan import Plan, plan

PIPELINE = Path(latency_index.__file__)
QUIET_MS = 2
"""When nobody had anything to do for so long, all is done: what is sent is there sooner."""
WARM_DOCUMENTS = 60
GUARANTEES = ("none", "causal")
TRIES = 1000
"""Looks at a checkpoint that a busy disk keeps from being complete."""

Parts = dict[str, float]
"""Task, or `threads`, → CPU ms."""


class Gated:
    """A partition's reader that gives one element when it is told to."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.open = False

    def read(self, position: int, count_max: int) -> Any:
        """One element if it is open, which closes it."""
        if not self.open:
            return None
        self.open = False
        return self.inner.read(position, 1)

    def ready_in_s(self, position: int) -> float:
        """At once: whoever opens it has it asked."""
        return 0.0

    def completed(self, position: int) -> None:
        """A checkpoint covers what is below."""
        self.inner.completed(position)

    def close(self) -> None:
        """Let go."""
        self.inner.close()


class Driven:
    """One task with its sockets, disk and store."""

    def __init__(self, found: Plan, config: JobConfig, index: int, place: Path, closing: ExitStack) -> None:
        topology = found.topology
        context: zmq.Context[Any] = zmq.Context(io_threads=1)
        closing.callback(context.destroy, 0)
        self.name = topology.tasks[index].name
        self.poller = zmq.Poller()
        self.transport = Transport(context, f"ipc://{place}/{index}", self.poller)
        self.disk = Disk(place, self.name, 1, place / "spill" / str(index))
        self.poller.register(self.disk.wake, zmq.POLLIN)
        task = topology.tasks[index].index
        chain = found.chain(index)
        protocol = TaskProtocol(topology, task, 1, config, chain, RealLive(), Cut(), [], _refuse)
        self.readers = {c.id: Gated(found.reader(c, place, 1)) for c in topology.inputs(task) if c.source == OUTSIDE}
        self.files: dict[int, list[Any]] = {}
        self.driver = TaskDriver(
            protocol,
            config.run,
            self.transport,
            self.disk,
            {c.id: found.store(c, place) for c in topology.outputs(task) if c.target == OUTSIDE},
            self.readers,
            self._heard,
        )
        closing.callback(self.driver.close)

    def _heard(self, kind: str, facts: Mapping[str, Any]) -> None:
        if kind == "snapshot":
            self.files[facts["epoch"]] = facts["files"]

    def work(self, wait_ms: int) -> float:
        """Do what there is to do, after waiting for it so long; ms of CPU, 0 for nothing."""
        ready = dict(self.poller.poll(wait_ms))
        if not ready and self.driver.task.idle and not any(reader.open for reader in self.readers.values()):
            return 0.0
        began_ns = time.thread_time_ns()
        for pending in self.driver._pending.values():
            pending.again_at_ns = 0  # it is asked now, not in a millisecond
        self.driver.work(ready)
        while not self.driver.task.idle:
            self.driver.work(dict(self.poller.poll(0)))
        return (time.thread_time_ns() - began_ns) / 1e6


def _refuse(line: str) -> None:
    raise runs.RunFailed(f"a task complains: {line}")


class Driving:
    """All tasks, connected, and a standby's image of each."""

    def __init__(self, guarantee: str, documents: int, place: Path, closing: ExitStack) -> None:
        settings = {"count": str(documents), "rate": "1e6", "out": str(place / "out.db")}
        config = JobConfig("parts", "latency-index", str(PIPELINE), settings, guarantee=guarantee)
        found = plan(load(PIPELINE, settings), config)
        indices = range(len(found.topology.tasks))
        self.tasks = [Driven(found, config, index, place, closing) for index in indices]
        self.images = [Image(found, index, place) for index in indices]
        self.epoch = 0
        for told, task in zip(self.tasks, found.topology.tasks, strict=True):
            downstream = {c.target: None for c in found.topology.outputs(task.index) if c.target != OUTSIDE}
            upstream = {c.source: None for c in found.topology.inputs(task.index) if c.source != OUTSIDE}
            for other in downstream:
                told.transport.dial(other, self.tasks[other].transport.endpoint)
            for other in downstream | upstream:
                told.driver.feed(PeerAt(other, 1))
        for told in reversed(self.tasks):
            told.driver.start()
        self._sources = [told for told in self.tasks if told.readers]
        self._partitions = [reader for told in self._sources for reader in told.readers.values()]
        self._settle(Parts())

    def _settle(self, parts: Parts) -> None:
        """Until nobody has anything to do; adds what that took."""
        busy = True
        while busy:
            busy = False
            for wait_ms in (0, QUIET_MS):
                for told in self.tasks if wait_ms == 0 or not busy else ():
                    took_ms = told.work(wait_ms)
                    parts[told.name] = parts.get(told.name, 0.0) + took_ms
                    busy = busy or took_ms > 0

    def document(self, number: int) -> Parts:
        """One more document through all tasks."""
        with _threads() as parts:
            self._partitions[number % len(self._partitions)].open = True
            self._settle(parts)
        return parts

    def checkpoint(self) -> tuple[Parts, Parts]:
        """One more: what it took of the tasks, and of the standbys that load it.

        Raises:
            RunFailed: it does not become complete.
        """
        self.epoch += 1
        with _threads() as parts:
            for told in self._sources:
                told.driver.feed(CheckpointAsked(self.epoch))
            for _ in range(TRIES):
                self._settle(parts)
                if all(self.epoch in told.files for told in self.tasks):
                    break
            else:
                raise runs.RunFailed(f"checkpoint {self.epoch} does not become complete")
            for told in self.tasks:
                parts[told.name] += _took_ms(partial(told.driver.feed, CheckpointCompleted(self.epoch)))
            self._settle(parts)
        loaded: Parts = {}
        for told, image in zip(self.tasks, self.images, strict=True):
            loaded[told.name] = _took_ms(partial(image.load, [tuple(file) for file in told.files.pop(self.epoch)]))
        return parts, loaded


def _took_ms(act: Callable[[], object]) -> float:
    began_ns = time.thread_time_ns()
    act()
    return (time.thread_time_ns() - began_ns) / 1e6


@contextmanager
def _threads() -> Iterator[Parts]:
    """Parts that, at the end, also say what other threads took."""
    parts: Parts = {}
    before_ns = time.process_time_ns() - time.thread_time_ns()
    yield parts
    parts["threads"] = (time.process_time_ns() - time.thread_time_ns() - before_ns) / 1e6


def measured(guarantee: str, documents: int, every: int) -> dict[str, Parts]:
    """What a document took, and under `causal` a checkpoint, and loading it; means over all but the first documents.

    Raises:
        RunFailed: what came out is not what had to.
    """
    total = (WARM_DOCUMENTS + documents) // PARTITIONS * PARTITIONS
    samples: dict[str, list[Parts]] = {}
    with tempfile.TemporaryDirectory(prefix="causal-parts-") as name, ExitStack() as closing:
        driving = Driving(guarantee, total, Path(name), closing)
        closing.callback(gc.set_threshold, *gc.get_threshold())
        closing.callback(gc.unfreeze)
        gc.set_threshold(GC_THRESHOLD, 20, 100)  # as a worker does
        gc.freeze()
        for number in range(total):
            told = {"document": driving.document(number)}
            if guarantee == "causal" and number % every == every - 1:
                told["checkpoint"], told["standby"] = driving.checkpoint()
            if number >= WARM_DOCUMENTS:
                for what, parts in told.items():
                    samples.setdefault(what, []).append(parts)
        wrong = latency_index.wrong(latency_index.rows_of(Path(name) / "out.db"), latency_index.expected(total))
        if any(wrong.values()):
            raise runs.RunFailed(f"{guarantee}: {wrong}")
    return {what: _mean(parts) for what, parts in samples.items()}


def _mean(samples: Sequence[Parts]) -> Parts:
    means = {part: sum(told[part] for told in samples) / len(samples) for part in samples[0]}
    return {part: round(value, 3) for part, value in {**means, "sum": sum(means.values())}.items()}


def main() -> int:
    """Measure both guarantees and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency_parts")
    parser.add_argument("--documents", type=int, default=120, help="that count (default: %(default)s)")
    parser.add_argument("--every", type=int, default=3, help="documents per checkpoint; at 50/s, 60 ms (default: 3)")
    options = parser.parse_args()
    found: dict[str, Any] = {each: measured(each, options.documents, options.every) for each in GUARANTEES}
    none, causal = found["none"]["document"]["sum"], found["causal"]
    checkpoint = (causal["checkpoint"]["sum"] + causal["standby"]["sum"]) / options.every
    found["causal_over_none"] = {
        "document": round(causal["document"]["sum"] / none, 3),
        "with_checkpoints": round((causal["document"]["sum"] + checkpoint) / none, 3),
    }
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
