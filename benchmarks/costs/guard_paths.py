"""The hot paths that `benchmarks guard` counts, with batches of two sizes: what grows between them is per record.

Three sorts: single functions, called on made-up batches; the steps of all tasks of a running keyed count (source,
count, sink; production core and chains, see `scale_data`), distinguished by task, event and what came of it; and what a
batch with a watermark makes the operators of one task of the workloads of `ordinary` do.

`python -m benchmarks.costs.guard_paths` prints the counts as JSON; `guard` starts it with a fixed hash seed.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median_low
from typing import Any

from benchmarks.costs.guard_count import Counter
from benchmarks.peers.programs.ordinary import pipelines, user_code
from benchmarks.scale.scale_data import CountedSink, DataPlane, Shape, row_of
from causal.channels.wire import DATA, Header, read_header
from causal.config import JobConfig
from causal.determinants import Clock, DeterminantCodec, Order
from causal.effects import Effect
from causal.events import Event, FrameReceived, Turn
from causal.logs.deltas import DeltaReader, DeltaWriter, pack_deltas, unpack_deltas
from causal.logs.log import DeterminantLog, LogDelta
from causal.records.batch import (
    LISTED,
    RECORDS,
    Chunk,
    decode_records,
    encode_records,
    pack_chunks,
    unpack_chunks,
    watermark,
)
from causal.task.determinant_cursor import DeterminantCursor
from causal.topology import FULL_DEPTH
from operators import Pipeline
from operators.engine.plan import plan
from operators.records.seconds import ns_of_seconds
from operators.stage.calls import CLOSED
from operators.testing.cluster import Process

SIZES = (64, 1024)
WARM_BATCHES = 4
BATCHES = 12
SAMPLES_MIN = 4
"""A step that is seen less often is no hot path."""
LEAST = 20
"""Records that a pipeline of `ordinary` is built for; its sources are not asked for any."""
KEYED = {
    "windows": "sums/0",
    "sliding": "means/0",
    "sessions": "visits/0",
    "join": "paid/0",
    "words": "words/0",
}
"""Workload → the task whose operators are counted."""


def counted(counter: Counter, sizes: Sequence[int] = SIZES) -> dict[str, dict[str, int]]:
    """Path and size → counts of one batch, the lower median of several."""
    counts: dict[str, dict[str, int]] = {}
    for size in sizes:
        for name, act in functions(size).items():
            counts[f"{name}, {size}"] = _typical([_counts(counter, act) for _ in range(SAMPLES_MIN)])
        for name, samples in (steps(counter, size) | chains(counter, size)).items():
            if len(samples) >= SAMPLES_MIN:
                counts[f"{name}, {size} records"] = _typical(samples)
    return counts


def _counts(counter: Counter, act: Callable[[], Any]) -> dict[str, int]:
    counter.measure(act)
    return counter.counts


def _typical(samples: list[dict[str, int]]) -> dict[str, int]:
    return {name: median_low(sample[name] for sample in samples) for name in samples[0]}


def functions(size: int) -> Mapping[str, Callable[[], Any]]:
    """Name → a call that does `size` records, chunks or determinants of work, alike every time."""
    rows = [row_of(position) for position in range(size)]
    body = encode_records(rows)
    chunks = [Chunk(RECORDS, 8, encode_records(rows[:8]), 1)] * (size // 8)
    packed = pack_chunks(chunks)
    log = _log(size)
    encoded = log.bytes_of(0)
    deltas = [LogDelta(task, 0, 100, b"x" * 12) for task in range(size // 8)]
    frames = [[LogDelta(task, 0, 2 * place, b"\x09\x11") for task in range(size // 64)] for place in range(8)]
    header = Header(DATA, 1, 2, 3)

    def session() -> None:
        writer, reader = DeltaWriter(), DeltaReader()
        for place, logs in enumerate(frames):
            reader.read(writer.pack(logs, []), begins=not place)
            reader.commit()

    def append() -> None:
        schedule = DeterminantCursor(DeterminantLog(0), 0, "guard/0")
        for number in range(size):
            schedule.record_order(number % 4, 100)

    def decode() -> None:
        codec, place = DeterminantCodec(), 0
        while place < len(encoded):
            _, place = codec.decode(encoded, place)

    return {
        "encode records": lambda: encode_records(rows),
        "decode records": lambda: decode_records(body),
        "pack chunks": lambda: pack_chunks(chunks),
        "unpack chunks": lambda: unpack_chunks(packed),
        "pack and read a header": lambda: read_header([header.pack(), b"", b""], 1),
        "pack and unpack deltas": lambda: unpack_deltas(pack_deltas(deltas, [])),
        "deltas of 8 frames of a session": session,
        "append order determinants": append,
        "decode determinants": decode,
    }


def _log(count: int) -> DeterminantLog:
    log, codec = DeterminantLog(0), DeterminantCodec()
    for number in range(count // 2):
        log.append(0, codec.encode(Order(number % 4, 100)))
        log.append(0, codec.encode(Clock(1_000_000 * number)))
    return log


class CountedPlane(DataPlane):
    """A source, a counting task and a sink; every step that does something is counted."""

    def __init__(self, counter: Counter, records: int) -> None:
        self.samples: dict[str, list[dict[str, int]]] = {}
        self._counter = counter
        super().__init__(Shape(2, 1, 1), FULL_DEPTH, records * (WARM_BATCHES + BATCHES), records)

    def handled(self, process: Process, event: Event) -> Sequence[Effect]:
        if not isinstance(event, (Turn, FrameReceived)) or self.read < self.config.batch_elements_max * WARM_BATCHES:
            return super().handled(process, event)
        task = process.protocol
        before = _delivered(task)
        effects = self._counter.measure(lambda: task.handle(event, self.now_ns))
        name = ("source", "count", "sink")[process.index]
        led_to = sorted({type(effect).__name__ for effect in effects})
        if _delivered(task) > before:
            led_to.insert(0, "delivered")
        if isinstance(event, FrameReceived):
            led_to = [f"kind {read_header(event.parts, self.job).kind}", *led_to]
        elif not led_to:
            return effects
        sample = f"{name}: {type(event).__name__} ({', '.join(led_to)})"
        self.samples.setdefault(sample, []).append(self._counter.counts)
        return effects


def _delivered(task: Any) -> int:
    return sum(channel.delivered for channel in task.inputs)


def steps(counter: Counter, records: int) -> dict[str, list[dict[str, int]]]:
    """Return what each sort of step of the keyed count was counted to do, every time."""
    plane = CountedPlane(counter, records)
    plane.run()
    return plane.samples


def chains(counter: Counter, size: int) -> dict[str, list[dict[str, int]]]:
    """Return what batches made one task of each workload do: the keyed one, of words the one before it."""
    samples: dict[str, list[dict[str, int]]] = {}
    for workload, task in KEYED.items():
        pipeline = Pipeline("guard")
        pipelines.built(pipeline, workload, LEAST).sink("out", CountedSink())
        planned = plan(pipeline, JobConfig(run="r", name="guard", pipeline="/p.py"))
        index = next(each.index for each in planned.topology.tasks if each.name == task)
        chain = planned.chain(index)
        makers = [maker for maker, _ in user_code.WORKLOADS[workload].inputs.values()]
        for batch in range(WARM_BATCHES + BATCHES):
            for input, maker in enumerate(makers):
                chunks = _batch(maker, batch * size // len(makers), size // len(makers))
                act = partial(chain.deliver, input, chunks, 0, CLOSED)
                if batch < WARM_BATCHES:
                    act()
                else:
                    samples.setdefault(f"{workload}: {task} delivers", []).append(_counts(counter, act))
    return samples


def _batch(maker: user_code.Maker, first: int, count: int) -> list[Chunk]:
    """Record as they come to a task, and the watermark after them where they have a time."""
    records = [maker(0, i) for i in range(first, first + count)]
    if not isinstance(records[0], dict):
        return [Chunk(LISTED, count, records)]
    mark_s = max(map(user_code.time_of, records)) - user_code.OUT_OF_ORDER_S
    return [Chunk(RECORDS, count, encode_records(records)), watermark(ns_of_seconds(mark_s))]


def main() -> int:
    """Print the counts of all paths, with batches of the sizes that are given, or of all."""
    sizes = [int(size) for size in sys.argv[1:]] or SIZES
    gc.disable()
    counts_of: dict[str, dict[str, int]] = {}
    for memory in (False, True):
        for path, counts in counted(Counter(memory), sizes).items():
            counts_of.setdefault(path, {}).update(counts)
    print(json.dumps(counts_of))
    return 0


if __name__ == "__main__":
    sys.exit(main())
