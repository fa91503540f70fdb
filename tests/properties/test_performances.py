"""Performances outside a job: unchanged code never gives other rows, and the rows are those of an upgraded job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from causal.errors import PipelineError
from causal.records.values import decode, encode
from causal.topology import Channel
from operators.builder.pipeline import Pipeline as Built
from operators.records.seconds import ns_of_seconds
from operators.replay import performance
from operators.replay.performance import Checkpoint, Performance, Step, WholePlan
from operators.source import Read
from tests.members import sample
from tests.properties.upgrades.driving import Invalid, Scene, moment_s, performed, until_barrier
from tests.properties.upgrades.examining import GRAPHS


class Listed:
    """A reader of records in memory."""

    def __init__(self, records: list[Any]) -> None:
        self._records = records

    def read(self, position: int, count_max: int) -> Read | None:
        return Read(self._records[position : position + count_max], 0)

    def ready_in_s(self, position: int) -> float:
        return 0.0

    def completed(self, position: int) -> None:
        raise AssertionError("a performance releases nothing")

    def close(self) -> None:
        """Do nothing."""


class Begun:
    """Performances from the savepoint of a scene."""

    def __init__(self, scene: Scene, chance: Random, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scene = scene
        self._world, self._saved = until_barrier(scene, chance)
        self._scratch = scratch
        records: dict[tuple[str, int], list[Any]] = {}
        for event in scene.events:
            records.setdefault(event.channel, []).extend([] if event.ends else [event.record])

        def reader(plan: WholePlan, channel: Channel, *rest: object) -> Listed:
            name, _ = plan.source_of(channel)
            return Listed(records.get((name, channel.partition), []))

        monkeypatch.setattr(WholePlan, "reader", reader)
        monkeypatch.setattr(performance, "rows_in", lambda _, chunk: [encode(row) for row in decode(chunk.body)])

    def performance(self, pipeline: Built) -> Performance:
        world = self._world
        checkpoint = Checkpoint(world.complete, world.topology, self._saved, lambda: nullcontext(world.plan))
        config = replace(world.config, processes="")
        return Performance(pipeline, config, checkpoint, self.scene.allow_dropped, self._scratch, self._scratch)

    def steps(self) -> Iterator[Step]:
        """Yield a step for each event after the savepoint, and once more for each end before it."""
        at: Counter[tuple[str, int]] = Counter()
        for number, event in enumerate(self.scene.events):
            first = at[event.channel]
            at[event.channel] += not event.ends
            if number >= self.scene.barrier or event.ends:
                moment_ns = ns_of_seconds(moment_s(max(number, self.scene.barrier - 1)))
                yield Step(moment_ns, *event.channel, first, at[event.channel], event.ends)


def drawn(name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begun:
    """Return a scene that can run on its own, at its savepoint."""
    for attempt in range(50):
        place = f"{name} {seed} {attempt}"
        scene = GRAPHS[name](Random(place))
        try:
            begun = Begun(scene, Random(f"{place} chance"), tmp_path, monkeypatch)
            begun.performance(scene.after())
            return begun
        except (Invalid, PipelineError):
            continue
    pytest.skip("no example of this kind can be performed outside its job")


@pytest.mark.parametrize("seed", sample(range(12), 1))
@pytest.mark.parametrize("name", GRAPHS)
def test_a_performance_gives_the_rows_of_an_upgraded_job(
    name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = drawn(name, seed, tmp_path, monkeypatch)
    once, again = (begun.performance(begun.scene.after()) for _ in range(2))
    rows: dict[str, Counter[bytes]] = {}
    for step in begun.steps():
        caused = once.perform(step)
        assert again.perform(step) == caused
        for task, own in caused.items():
            rows.setdefault(task.rpartition("/")[0], Counter()).update(own)
    try:
        outcome = performed(begun.scene, Random(seed), to_the_end=False)
    except Invalid:
        pytest.skip("the model of the scene does not say what an open end gives")
    expected = {sink: Counter(map(encode, own)) for sink, own in outcome.after.items() if own}
    assert {sink: own for sink, own in rows.items() if own} == expected
