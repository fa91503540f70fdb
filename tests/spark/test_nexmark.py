"""Nexmark's queries: what Spark SQL computes as a batch is what the model computes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from examples.nexmark import model
from examples.nexmark.batch import write_events
from examples.nexmark.events import Events
from examples.nexmark.terms import QUERIES, Terms

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]
TERMS = Terms(window_s=4, every_s=2, gap_s=1, auction_skip=7)


def test_spark_sql_and_the_model_agree_on_every_query(tmp_path: Path) -> None:
    events = Events(events_per_s=100, out_of_order=20).listed(2000)
    write_events(events, tmp_path / "events.jsonl")
    settings = [f"{name}={getattr(TERMS, name)}" for name in Terms.__slots__]
    argv = [sys.executable, "-m", "examples.nexmark.batch", str(tmp_path / "events.jsonl"), *settings]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    told: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in done.stdout.splitlines():
        query, row = json.loads(line)
        told[query].append(row)
    assert sorted(told) == sorted(set(QUERIES) - {12})
    for query, rows in told.items():
        assert model.canonical(rows) == model.canonical(model.rows(query, events, TERMS)), f"query {query}"
