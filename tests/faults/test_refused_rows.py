"""Rows that the store of a sink will never take: one line, or dead letters that can be counted whatever dies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.harness.runs import sets
from benchmarks.harness.written import records_in, rows_in
from tests.faults.conftest import Start
from tests.faults.job import NUMBERED, PIPELINES, assert_numbered

COUNT = 6000


@pytest.mark.campaign
def test_a_refused_row_ends_the_job_in_one_line_and_resumed_each_is_put_aside_once_whatever_dies(
    start: Start, tmp_path: Path
) -> None:
    job = start(NUMBERED, "--sharing-depth", "1", *sets(sink="ruled", count=COUNT, rate=200, gate=tmp_path / "gate"))
    status, said = job.finish()
    assert status == 1 and len(said.splitlines()) == 1, said
    assert "sink 'out', position 7 of out/0: its store refused the row: no sevens; record {" in said
    assert '"i": 7' in said and "resume with --on-error dead-letter" in said
    job.start("--resume", "--on-error", "dead-letter")
    job.until_warm(records=50)
    for task in ("out/0", "number/0", "out/0", "out/0"):
        job.replace(task)
    job.kill_everything()
    (tmp_path / "gate").touch()
    job.start("--resume")
    report = job.finish_well()
    refused = [i for i in range(COUNT) if i % 10 == 7]
    kept = list(rows_in(tmp_path / "out.db", "SELECT position, reason FROM causal_refused ORDER BY position"))
    assert_numbered(records_in(tmp_path / "out.db"), COUNT, without=lambda i: i % 10 == 7)
    assert kept == [(position, "no sevens") for position in refused]
    assert report["refused"] == len(refused) and report["records_out"] == COUNT
    [file] = (job.state / "dead-letters").glob("refused-*.jsonl")
    letters = [json.loads(line) for line in file.read_text().splitlines()]
    assert {letter["error"] for letter in letters} == {"RowRefused: no sevens"}
    # With depth 1 a row may be withdrawn and drawn again: what is drawn differs, and so has a letter of its own.
    assert sorted({letter["position"] for letter in letters}) == refused
    doubled = len(letters) - len({(letter["position"], json.dumps(letter["record"])) for letter in letters})
    assert doubled == 0


@pytest.mark.campaign
def test_records_that_cannot_be_encoded_have_a_letter_each_whatever_dies(start: Start, tmp_path: Path) -> None:
    job = start(PIPELINES / "no_text.py", "--set", f"gate={tmp_path / 'gate'}")
    status, said = job.finish()
    assert status == 1 and len(said.splitlines()) == 1 and "operator 'out', position " in said, said
    assert "NotCarried: a key that is a tuple cannot be written as JSON; convert it to a string" in said
    job.start("--resume", "--on-error", "dead-letter")
    job.until_warm(records=50)
    for task in ("out/0", "dead-letters/0", "out/0"):
        job.replace(task)
    job.kill_everything()
    (tmp_path / "gate").touch()
    job.start("--resume", "--on-error", "dead-letter")
    report = job.finish_well()
    rows = [json.loads(line)["i"] for line in (tmp_path / "out" / "out-0.jsonl").read_text().splitlines()]
    assert sorted(rows) == [i for i in range(3000) if i % 10 != 7] and report["dead_letters"] == 300
    letters = (job.state / "dead-letters" / "dead-letters-0.jsonl").read_text().splitlines()
    texts = [str({"i": i, "odd": {(i, i): 1}}) for i in range(7, 3000, 10)]
    assert sorted(json.loads(line)["record"] for line in letters) == sorted(texts)
