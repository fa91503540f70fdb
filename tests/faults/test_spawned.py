"""Children that `multiprocessing` starts have the pipeline's code, and end with their pool, or with their task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.conftest import Start

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


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
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
