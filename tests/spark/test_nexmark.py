"""Nexmark: what Spark SQL computes as a batch is what the model computes, and what queries give that Spark feeds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from examples.nexmark import check, model, queries
from examples.nexmark.batch import write_events
from examples.nexmark.events import Events
from examples.nexmark.spark_input import clean, write_files
from examples.nexmark.terms import QUERIES, Terms
from operators.sinks import SqliteSink
from tests.members import members

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]
TERMS = Terms(window_s=4, every_s=2, gap_s=1, auction_skip=7)


@pytest.mark.campaign
def test_spark_sql_and_the_model_agree_on_every_query(tmp_path: Path) -> None:
    events = Events(events_per_s=100, out_of_order=20).listed(2000)
    write_events(events, tmp_path / "events.jsonl")
    settings = [f"{name}={getattr(TERMS, name)}" for name in Terms.__slots__]
    argv = [sys.executable, "-m", "examples.nexmark.batch", str(tmp_path / "events.jsonl"), *settings]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    rows_by_query: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in done.stdout.splitlines():
        query, row = json.loads(line)
        rows_by_query[query].append(row)
    assert sorted(rows_by_query) == sorted(set(QUERIES) - {12})
    for query, rows in rows_by_query.items():
        assert model.canonical(rows) == model.canonical(model.rows(query, events, TERMS)), f"query {query}"


FED = (0, 3, 5, 8, 12, 14)
"""One of each sort: behind the source the others are what they are without Spark (`tests/faults/test_nexmark.py`)."""


@pytest.mark.parametrize("query", members(FED))
def test_a_query_fed_by_spark_while_its_tasks_are_killed(tmp_path: Path, query: int) -> None:
    shape, out = Events(events_per_s=100, out_of_order=20), tmp_path / "out.db"
    events = shape.listed(1500)
    write_files(events, tmp_path / "events", files=3)
    settings = {"query": query, "ingest": "spark", "input": tmp_path / "events", "out": out, "clock_s": 0.5}
    settings |= {"events_per_s": 100, "out_of_order": 20, "window_s": 4, "every_s": 2, "gap_s": 1, "auction_skip": 7}
    terms = Terms.of_settings({name: str(value) for name, value in settings.items()})
    planned = queries.pipeline(query, shape.source(1500), SqliteSink(out), terms, clean=clean)
    victim = next(node.name for node in reversed(planned.nodes) if node.kind != "sink")
    argv = [sys.executable, "-m", "deploy", "run", str(ROOT / "examples" / "nexmark" / "job.py"), *sets(**settings)]
    argv += ["--state-dir", str(tmp_path / "job"), "--kill", f"{victim}/0@0.3", "--kill", "out/0@0.6"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    rows = check.rows_of(out)
    assert check.compare(query, rows, events, terms) == {"rows": len(rows), "lost": 0, "false": 0}
    assert rows
