"""A sink promises what the job promises, unless its own setting differs; so does the journal of the supervisor."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from causal.config import JobConfig
from operators import Pipeline
from operators.engine.plan import plan
from operators.sinks import CallbackSink, JsonLinesSink, SqliteSink
from operators.sinks.contract.sink import Sink
from operators.sources import GeneratedSource
from standby.storage.journal import Journal


def planned(sink: Sink, durability: str) -> Sink:
    pipeline = Pipeline("kept")
    pipeline.source("numbers", GeneratedSource(lambda partition, position: position, count=3)).sink("out", sink)
    plan(pipeline, JobConfig(run="r", name="kept", pipeline="p", durability=durability))
    return sink


@pytest.mark.parametrize("durability", ["process", "os"])
def test_a_sink_takes_the_durability_of_its_job(tmp_path: Path, durability: str) -> None:
    for sink in (SqliteSink(tmp_path / "out.db"), JsonLinesSink(tmp_path), CallbackSink(print)):
        assert planned(sink, durability).durability == durability


def test_its_own_argument_counts_more(tmp_path: Path) -> None:
    assert planned(SqliteSink(tmp_path / "out.db", durability="os"), "process").durability == "os"
    assert planned(SqliteSink(tmp_path / "out.db", durability="process"), "os").durability == "process"


@pytest.mark.parametrize(("sync", "level"), [(False, 1), (True, 2)])
def test_the_supervisors_journal(tmp_path: Path, sync: bool, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's levels: 1 is NORMAL, 2 is FULL."""
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def watched(*arguments: object, **options: object) -> sqlite3.Connection:
        opened.append(connect(*arguments, **options))  # type: ignore[call-overload]
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", watched)
    journal = Journal(tmp_path, sync)
    journal.append([{"kind": "promoted"}])
    assert opened[0].execute("PRAGMA synchronous").fetchone() == (level,)
    journal.close()
