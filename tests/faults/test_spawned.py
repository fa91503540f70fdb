"""Children that `multiprocessing` starts have the pipeline's code, and end with their pool, or with their task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.conftest import Start
from tests.faults.test_bad_input import one_line
from tests.members import members

PIPELINE = """
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor

import steps
from operators import Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource

pipeline = Pipeline("spawning")
method = pipeline.settings["method"]
offset = int(pipeline.settings["offset"])
pools = []


def raised(n):
    return steps.raised(n) + offset


def ask(record):
    if not pools:
        os.environ.pop("CAUSAL_SPAWNED_OF", None)
        pools.append(ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)))
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.map(steps.raised, [1]) == [1001]
        child = multiprocessing.get_context(method).Process(target=time.sleep, args=(600,))
        child.start()
        child.terminate()
        child.join()
    return {"i": record["i"], "raised": list(pools[0].map(raised, [record["i"]]))[0]}


numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: {"i": i}, count=60, rate=30))
numbers.map("ask", ask).sink("out", JsonLinesSink("out"))
"""
STEPS = """
def raised(n):
    return n + 1000
"""


@pytest.mark.parametrize("method", members(["spawn", "forkserver", "fork"], "spawn"))
def test_a_child_has_the_archived_code_and_ends_with_its_pool(method: str, start: Start, tmp_path: Path) -> None:
    (tmp_path / "spawning.py").write_text(PIPELINE)
    (tmp_path / "steps.py").write_text(STEPS)
    job = start(
        tmp_path / "spawning.py", "--set", f"method={method}", "--set", "offset=7", "--kill", "ask/0@1",
        config={"stuck_after_ms": 30_000},
    )  # fmt: skip
    job.until("it runs", lambda view: view)
    (tmp_path / "steps.py").write_text(STEPS.replace("1000", "2000"))
    job.finish_well()
    rows = [json.loads(line) for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert sorted(row["i"] for row in rows) == list(range(60))
    assert all(row["raised"] == row["i"] + 1007 for row in rows)


LOSING = """
import glob
import multiprocessing
import os

from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource

pipeline = Pipeline("losing")


def double(n):
    return 2 * n


def ask(n):
    for archive in glob.glob("job/code/*.zip"):
        os.remove(archive)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.map(double, [n])[0]


numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: i, count=1))
numbers.map("ask", ask).sink("out", JsonLinesSink("out"))
"""


def test_a_pool_whose_children_could_not_load_the_code_is_refused_in_one_line(start: Start, tmp_path: Path) -> None:
    """Such a pool would start them repeatedly, and never end."""
    (tmp_path / "losing.py").write_text(LOSING)
    status, said = start(tmp_path / "losing.py").finish()
    line = one_line(said)
    assert status == 1 and "the code of the run, is missing; restore it from a copy" in line
