"""Jobs that are recorded while their tasks are killed: a replay performs every epoch of every task as it was.

`python -m tests --campaign -k recorded_kills` takes every recipe of the cookbook and every oracle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from examples.cookbook.payment_service import Service
from tests.docs.recipes import PROGRAMS, with_held_end
from tests.docs.test_cookbook import INPUTS
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, Job
from tests.faults.replayed import assert_replayed
from tests.faults.test_operators import NAMES, RATE, WHOLE, all_run, example
from tests.members import members
from tests.oracles.frame import Draw

RECORDED = ("--record", "1h,1GB", "--checkpoint-interval", "0.2")
TURNS = 3
"""The number of times that tasks are killed."""
RECIPES = [(name, seed) for name in (*INPUTS, "paid_calls", "lakehouse", "vectors") for seed in range(3)]
DRAWN = [(name, 100 * number) for name in NAMES for number in range(3)]


@pytest.fixture
def url() -> Iterator[str]:
    """The payment service of the recipe."""
    with Service(0) as serving:  # type: ignore[no-untyped-call]
        thread = Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}/charges"
        serving.shutdown()
        thread.join()


def kill_tasks(job: Job, chance: Draw) -> None:
    """Kill one task, then two, then all at the same time, each time after another checkpoint."""
    for turn in range(TURNS):
        view = job.until("another checkpoint is complete", partial(more_checkpoints, turn))
        living = [task["task"] for task in view["tasks"] if task["state"] != "finished"]
        job.replace(*chance.sample(living, min((1, 2, len(living))[turn], len(living))))
        job.until("all tasks run", all_run)


def more_checkpoints(count: int, view: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the view if more than `count` checkpoints are complete."""
    return view if view["checkpoint"]["count"] > count else None


@pytest.mark.parametrize(("name", "seed"), members(RECIPES, ("alerts", 0), ("paid_calls", 0)))
def test_a_recipe_is_the_same_in_a_replay(start: Start, tmp_path: Path, url: str, name: str, seed: int) -> None:
    if name in ("lakehouse", "vectors"):
        pytest.importorskip("deltalake" if name == "lakehouse" else "pyarrow")
    gate = tmp_path / "gate"
    job = start(
        with_held_end(PROGRAMS / f"{name}.py", tmp_path, gate),
        *RECORDED,
        *(sets(url=url) if name == "paid_calls" else ()),
    )
    chance = Draw(f"{name}/{seed}/kills")
    kill_tasks(job, chance)
    gate.touch()
    job.finish_well()
    assert assert_replayed(job.state, chance) >= TURNS


@pytest.mark.parametrize(("name", "first"), members(DRAWN, ("join", 0), ("window-table", 0)))
def test_what_an_oracle_draws_is_the_same_in_a_replay(start: Start, tmp_path: Path, name: str, first: int) -> None:
    seed, scenario = example(name, first)
    out, gate = tmp_path / "rows", tmp_path / "gate"
    out.mkdir()
    config = {key: value for key, value in scenario.config.items() if key != "clock_s"}
    if name in WHOLE:
        config["batch_elements_max"] = 1
    settings = sets(oracle=name, seed=seed, out=out, rate=RATE, gate=gate)
    job = start(PIPELINES / "drawn.py", *settings, *RECORDED, config=config or None)
    chance = Draw(f"{name}/{first}/recorded kills")
    kill_tasks(job, chance)
    gate.touch()
    job.finish_well()
    assert assert_replayed(job.state, chance) >= TURNS
