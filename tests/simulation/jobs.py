"""The jobs that are simulated: a graph, a chain per task, a record per position.

Two sorts: hashing chains on graphs of any shape, and pipelines written with the operator API, run by the chains,
states, timers and windows that ship.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.ids import OUTSIDE, ChannelId, TaskIndex, TaskName
from causal.ports import Chain
from causal.topology import FULL_DEPTH, REQUESTS, Channel, Task, Topology
from operators import Operator, Pipeline
from operators.engine.plan import Plan, plan
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from tests.simulation.chains import HashingChain
from tests.simulation.clockwork import MS
from tests.simulation.scenario import OTHER_CODE, Scenario

Ask = Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Job:
    """The graph, the code and the records of a scenario.

    Attributes:
        chain: a fresh chain of a task; `ask` is the outside world it may call, and each version of its code but 0 gives
            other rows.
        make: the record at (partition, position).
    """

    topology: Topology
    chain: Callable[[int, Ask, int], Chain]
    make: Callable[[int, int], Any]


def job_of(scenario: Scenario, config: JobConfig) -> Job:
    """Return the job of a scenario."""
    return _pipeline_job(scenario, config) if scenario.production else _hashing_job(scenario)


def graph(
    layers: tuple[int, ...],
    partitions: int,
    shortcut: bool,
    ordered: bool = False,
    asking: bool = False,
    separate: bool = False,
) -> Topology:
    """Return sources, fully connected layers, sinks; with a shortcut each source also sends to the last layer but one.

    Args:
        asking: each task has a store for the keys of its requests.
        separate: there are two such graphs, which no channel connects.
    """
    copies = 1 + separate
    layers = tuple(width * copies for width in layers)
    tasks: list[Task] = []
    groups: list[list[int]] = []
    for depth, width in enumerate(layers):
        groups.append([len(tasks) + i for i in range(width)])
        content = ordered and depth > 0
        tasks += [Task(TaskIndex(len(tasks) + i), TaskName(f"l{depth}/{i}"), (), content) for i in range(width)]
    ends: list[tuple[int, int, int]] = [(OUTSIDE, task, place) for task in groups[0] for place in range(partitions)]
    between = list(zip(groups, groups[1:], strict=False))
    if shortcut:
        between.append((groups[0], groups[-2] if len(groups) > 3 else groups[-1]))
    ends += [
        (a, b, 0)
        for above, below in between
        for place, a in enumerate(above)
        for other, b in enumerate(below)
        if place * copies // len(above) == other * copies // len(below)
    ]
    ends += [(task, OUTSIDE, 0) for task in groups[-1]]
    ends += [(task.index, OUTSIDE, REQUESTS) for task in tasks if asking]
    numbered = [(a, b, place) for place, (a, b, _) in enumerate(e for e in ends if e[0] == OUTSIDE)]
    whole = numbered + [end for end in ends if end[0] != OUTSIDE]
    return Topology(
        tuple(tasks),
        tuple(Channel(ChannelId(i), TaskIndex(a), TaskIndex(b), place) for i, (a, b, place) in enumerate(whole)),
    )


def _hashing_job(scenario: Scenario) -> Job:
    logging = scenario.guarantee == "causal"
    asking = logging and "ask" in scenario.kinds
    topology = graph(
        scenario.layers, scenario.partitions, scenario.shortcut, scenario.ordered, asking, scenario.separate
    )
    # Below full depth a request may be taken back, and its number come again; other code asks for other things.
    by_number = logging and scenario.depth == FULL_DEPTH and all(f.kind != OTHER_CODE for f in scenario.faults)

    def chain(task: int, ask: Ask, version: int) -> Chain:
        outputs = sum(not channel.carries_requests for channel in topology.outputs(TaskIndex(task)))
        sink = topology.is_sink(TaskIndex(task))
        return HashingChain(
            outputs, sink, scenario.fan_out, scenario.kinds, ask, scenario.slow_ms * MS,
            outputs if asking else None, topology.tasks[task].name, by_number, version,
        )  # fmt: skip

    return Job(topology, chain, lambda partition, position: ("p", partition, position))


# -- with the operator API ---------------------------------------------------------------------------


class Chained(Operator):
    """Per key: everything nondeterministic there is, chained by hash to the key's previous output."""

    def __init__(self, kinds: tuple[str, ...], ask: Ask, version: int) -> None:
        self._version = [version] if version else []
        self._kinds = kinds
        self._ask = ask

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        n = ctx.state.get("n", 0) + 1
        ctx.state["n"] = n
        facts: list[Any] = [record["from"], record["i"], n]
        if "clock" in self._kinds and n % 2:
            facts.append(ctx.now_ns())
        if "random" in self._kinds:
            facts.append(ctx.random.randrange(1 << 30))
        if "call" in self._kinds and n % 3 == 0:
            facts.append(ctx.call(lambda: self._ask().hex()))
        if "timer" in self._kinds and not ctx.state.get("waiting"):
            ctx.state["waiting"] = True
            ctx.set_timer(ctx.now() + 0.004, "again")
        yield self._linked(ctx, record, [*facts, repr(ctx.key)])

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        ctx.state["waiting"] = False
        yield self._linked(ctx, {"from": "t", "i": ctx.state["n"], "k": ctx.key}, [ctx.now_ns()])

    def _linked(self, ctx: Any, record: Any, facts: list[Any]) -> dict[str, Any]:
        before = ctx.state.get("hash", "")
        ctx.state["hash"] = blake2b((before + repr(facts + self._version)).encode(), digest_size=8).hexdigest()
        return {"from": record["from"], "i": record["i"], "k": record["k"], "hash": ctx.state["hash"]}


def _repeated(record: Any) -> list[Any]:
    return [record, record]


def _never_called(record: Any, key: str) -> Any:
    raise NotImplementedError("requests are put to the simulated service")


def _with_answer(record: Any, answer: Any) -> Any:
    return {**record, "hash": f"{record.get('hash', '')}+{answer}"}


def _summed(key: Any, records: list[Any], window: Any) -> Iterator[Any]:
    yield {"from": "w", "i": len(records), "k": key, "hash": ",".join(record.get("hash", "") for record in records)}


def _pipeline_job(scenario: Scenario, config: JobConfig) -> Job:
    make = _mixed_record if scenario.mixed_keys else _record

    def planned(ask: Ask, version: int) -> Plan:
        pipeline = Pipeline("simulated")
        widths = scenario.layers
        count, partitions = scenario.records, widths[0] * scenario.partitions
        stream = pipeline.source("read", GeneratedSource(make, count=count, partitions=partitions), widths[0])
        for depth, width in enumerate(widths[1:-1]):
            keyed = stream.map(f"pass{depth}", dict).key_by(lambda r: r["k"])
            stream = keyed.process(f"chain{depth}", Chained(scenario.kinds, ask, version), parallelism=width)
        if "ask" in scenario.kinds:
            # Requests of equal content follow each other: only their numbers distinguish them.
            stream = stream.flat_map("repeat", _repeated) if scenario.fan_out else stream
            order = "input" if scenario.seed % 2 else "completion"
            stream = stream.call("ask", _never_called, combine=_with_answer, order=order, concurrency=2)
        if "window" in scenario.kinds:
            stream = stream.union(stream.key_by(lambda r: r["k"]).window("sum", 0.01, _summed))
        stream.sink("out", JsonLinesSink(Path("/nowhere")), parallelism=widths[-1])
        return plan(pipeline, config)

    return Job(planned(bytes, 0).topology, lambda task, ask, version: planned(ask, version).chain(task), make)


def _record(partition: int, position: int) -> dict[str, Any]:
    return {"from": partition, "i": position, "k": (partition * 7 + position) % 5}


def _mixed_record(partition: int, position: int) -> dict[str, Any]:
    """Return the same record, with a key whose type differs from that of equal keys."""
    record = _record(partition, position)
    spelled = (int, float, bool if record["k"] < 2 else int)[position // 5 % 3]
    return {**record, "k": spelled(record["k"])}
