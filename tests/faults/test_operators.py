"""Operators in real processes that are killed: examples of their oracles, which `tests/oracles` runs in the kit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from benchmarks.harness.written import lines_in
from causal.records.values import decode
from operators.testing import TrialResult
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES
from tests.members import members
from tests.oracles.all import ORACLES
from tests.oracles.frame import LETTERS, Draw, Scenario

SEEDS, RATE = 20, 12
"""The examples of which one is chosen, and the records of each source per second."""
ALWAYS = ("join", "window-table", "vectors")
NAMES = (
    *ALWAYS, "windows", "order", "sessions", "count-windows", "triggers", "clock-windows-crashed", "window-join",
    "join-table", "broadcast", "table", "groups", "aggregate-table", "table-join", "count", "reduce", "union", "state",
    "timers-event",
)  # fmt: skip
"""The oracles of what holds state; the sample has a join, a table of windows, and columns."""
WHOLE = ("triggers",)
"""Here batches have one record."""


def example(name: str, first: int) -> tuple[int, Scenario]:
    """Return the example with most records of some seeds from there, and its seed."""
    drawn = {seed: ORACLES[name](Draw(f"{name}/{seed}")) for seed in range(first, first + SEEDS)}
    seed = max(drawn, key=lambda seed: sum(map(size, drawn[seed].inputs.values())))
    return seed, drawn[seed]


def size(records: Any) -> int:
    return sum(len(each) if type(each) is list else 1 for each in records)


def results(scenario: Scenario, out: Path, report: Mapping[str, Any], letters: list[Any]) -> TrialResult:
    """Return what the job has written, as the kit returns it."""
    sinks = [node.name for node in scenario.pipeline.nodes if node.kind == "sink"]
    rows = {name: [decode(bytes.fromhex(text))[0] for text in lines_in(out / name)] for name in sinks}
    return TrialResult({**rows, LETTERS: letters}, report["counts"], 0, {}, {}, 0.0)


CASES = [(name, 100 * number) for name in NAMES for number in range(3)]


@pytest.mark.parametrize(("name", "first"), members(CASES, *((name, 0) for name in ALWAYS)))
def test_rows_are_those_of_the_oracle_whatever_dies(start: Start, tmp_path: Path, name: str, first: int) -> None:
    seed, scenario = example(name, first)
    out, gate = tmp_path / "rows", tmp_path / "gate"
    out.mkdir()
    config = {key: value for key, value in scenario.config.items() if key != "clock_s"}
    if name in WHOLE:
        config["batch_elements_max"] = 1
    settings = sets(oracle=name, seed=seed, out=out, rate=RATE, gate=gate)
    job = start(PIPELINES / "drawn.py", *settings, "--checkpoint-interval", "0.3", config=config or None)
    view = job.until("a checkpoint is complete", lambda view: view if view["checkpoint"]["count"] else None)
    chance, killed = Draw(f"{name}/{first}/kills"), 0
    for together in (1, 2, len(view["tasks"])):
        living = [task["task"] for task in view["tasks"] if task["state"] != "finished"]
        victims = chance.sample(living, min(together, len(living)))
        job.replace(*victims)
        killed += len(victims)
        view = job.until("all tasks run", lambda view: view if all_run(view) else None)
    gate.touch()
    report = job.finish_well()
    assert len(report["recoveries"]) == killed
    scenario.check(results(scenario, out, report, job.letters()))


@pytest.mark.campaign
@pytest.mark.parametrize("name", NAMES)
def test_every_epoch_is_the_same_a_second_time(start: Start, tmp_path: Path, name: str) -> None:
    """`--verify-replay` performs each epoch again from recorded elements, and compares all outputs and all state."""
    seed, scenario = example(name, 0)
    out, gate = tmp_path / "rows", tmp_path / "gate"
    out.mkdir()
    gate.touch()
    settings = sets(oracle=name, seed=seed, out=out, rate=RATE, gate=gate)
    job = start(PIPELINES / "drawn.py", *settings, "--checkpoint-interval", "0.3", "--verify-replay")
    report = job.finish_well()
    assert report["checked_epochs"] and all(report["checked_epochs"].values())


def all_run(view: Mapping[str, Any]) -> bool:
    return all(task["state"] in ("running", "finished") for task in view["tasks"])
