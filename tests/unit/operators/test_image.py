"""A standby's image: what it held is freed when a full snapshot replaces it, or stays where that says what changed."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from causal.cut import Cut
from causal.storage.files import write_parts
from causal.task.checkpointing import SnapshotFile
from operators import Operator, Pipeline
from operators.engine.plan import plan
from operators.runtime.image import Image
from operators.runtime.rescaling import whole
from operators.state import snapshot_parts
from tests.unit.operators.scene import NoSink, config, source

State = Literal["memory", "disk"]
STATES = pytest.mark.parametrize("state", ["memory", "disk"])


class Seen(Operator):
    """Keeps every record of a key."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        """Append the record to those of its key."""
        ctx.state.setdefault("seen", []).append(record)
        yield record


def planned(directory: Path, state: State) -> Any:
    pipeline = Pipeline("kept")
    stream = pipeline.source("in", source()).key_by(lambda record: record)
    stream.process("keep", Seen(), state=state).sink("out", NoSink())
    return plan(pipeline, config(state_memory_bytes_max=1 << 16, state_directory=str(directory / "spill")))


def task_of(graph: Any) -> int:
    return int(next(task.index for task in graph.topology.tasks if task.name.startswith("keep/")))


def filled(graph: Any, count: int) -> Any:
    chain: Any = graph.chain(task_of(graph))
    (table,) = (table for stage in chain.stages for table in stage.tables() if table.name == "keep")
    for key in range(count):
        table.touch((key,))
        table.values[key] = {"seen": [key] * 20}
        table.shrink()
    return chain


def stored(directory: Path, graph: Any, epoch: int, count: int) -> SnapshotFile:
    name = f"{epoch}.snap"
    return (name, *write_parts(directory / name, [Cut(epoch).pack(), *whole(filled(graph, count))], durable=False))


def open_stores() -> int:
    places = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return sum(".cold" in os.readlink(place) for place in places if os.path.lexists(place))


@STATES
def test_what_a_full_snapshot_replaces_is_freed(tmp_path: Path, state: State) -> None:
    graph = planned(tmp_path, state)
    files = [stored(tmp_path, graph, epoch, 1_000) for epoch in (1, 2, 3)]
    gc.collect()
    before = open_stores()
    image = Image(graph, task_of(graph), tmp_path)
    replaced: list[tuple[Any, Any]] = []
    for file in files:
        image.load([file])
        tables = {table.name: table for stage in image.chain.stages for table in stage.tables()}  # type: ignore[attr-defined]
        assert len(tables["keep"].values) == 1_000
        assert open_stores() - before == (state == "disk"), "one file, of the image that is there"
        assert not any(len(values) for values, _ in replaced), "nothing waits for a collection"
        replaced.append((tables["keep"].values, weakref.ref(image.chain)))
        del tables
    references = [reference for _, reference in replaced]
    replaced.clear()
    gc.collect()
    assert [reference() is None for reference in references] == [True, True, False]


def linked(directory: Path, chain: Any, epoch: int, behind: str, full: bool) -> SnapshotFile:
    name, job = f"{epoch}.snap", chain.snapshot(full, behind if full else "")
    while not job.step(100):
        pass
    return (name, *write_parts(directory / name, job.parts(Cut(epoch).pack()), durable=False))


@STATES
def test_of_a_full_snapshot_only_what_has_changed_is_loaded(
    tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = planned(tmp_path, state)
    chain = filled(graph, 1_000)
    (table,) = (table for stage in chain.stages for table in stage.tables() if table.name == "keep")
    files = [linked(tmp_path, chain, 1, "", True)]
    image = Image(graph, task_of(graph), tmp_path)
    image.load(files)
    for epoch in (2, 3, 4, 5):
        table.touch((epoch, 500 + epoch))
        table.values[epoch] = {"seen": [epoch]}
        table.values.pop(500 + epoch)
        full = epoch in (3, 4)
        file = linked(tmp_path, chain, epoch, files[-1][2], full)
        files = [file] if full else [*files, file]
        kept, before = image.chain, loaded_bytes(image, monkeypatch)
        image.load(files)
        assert image.chain is kept and image.files == files and image.cut.epoch == epoch
        assert sum(before) < 200, "nothing of the keys that have not changed"
    late = Image(graph, task_of(graph), tmp_path)
    for every in (files, files[:1]):
        late.load(every)  # these have no link from its state, so it loads all
    late.load(files)
    states = [sorted(values_of(each.chain).items()) for each in (image, late)]
    assert states[0] == states[1] == sorted(values_of(chain).items()) and len(states[0]) == 996


@pytest.mark.parametrize("other", [True, False], ids=["it links to other files", "its increment is too much"])
def test_what_cannot_be_loaded_as_a_change_is_loaded_whole(
    other: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = planned(tmp_path, "memory")
    chain = filled(graph, 10)
    first = linked(tmp_path, chain, 1, "", True)
    monkeypatch.setattr(snapshot_parts, "INCREMENT_BYTES_MAX", snapshot_parts.INCREMENT_BYTES_MAX if other else 10)
    second = linked(tmp_path, chain, 2, first[2], True)
    image = Image(graph, task_of(graph), tmp_path)
    image.load([stored(tmp_path, graph, 9, 20) if other else first])
    before = image.chain
    image.load([second])
    assert image.chain is not before and len(values_of(image.chain)) == 10


def values_of(chain: Any) -> dict[Any, Any]:
    (table,) = (table for stage in chain.stages for table in stage.tables() if table.name == "keep")
    return dict(table.values.items())


def loaded_bytes(image: Image, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of the fragments that the table of an image loads from now on."""
    sizes: list[int] = []
    chain: Any = image.chain
    (stage,) = (stage for stage in chain.stages if any(table.name == "keep" for table in stage.tables()))
    loaders = stage.loaders()

    def load(fragment: bytes) -> None:
        sizes.append(len(fragment))
        loaders["keep"](fragment)

    monkeypatch.setattr(stage, "loaders", lambda: {**loaders, "keep": load})
    return sizes
