"""Mistakes are reported in one line that names the place and the fix, with the promised exit status; no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness.processes import kill
from benchmarks.harness.written import lines_in
from tests.faults.conftest import Start
from tests.faults.job import causal
from tests.members import members

HEAD = """
import os
from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink, SqliteSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import hold_end

pipeline = Pipeline("p")
source = GeneratedSource(lambda p, i: {"i": i, "k": i % 3}, count=1000, rate=RATE)
numbers = pipeline.source("numbers", hold_end(source, GATE))
out = JsonLinesSink("rows")
"""


def written(directory: Path, body: str, rate: str = "None", gate: Path | None = None) -> Path:
    """A pipeline file; its job does not end before the gate is there."""
    path = directory / "p.py"
    path.write_text(HEAD.replace("RATE", rate).replace("GATE", repr(gate and str(gate))) + body)
    return path


def one_line(said: str) -> str:
    lines = said.splitlines()
    assert len(lines) == 1 and lines[0].startswith("causal: "), said
    assert "Traceback" not in said
    return lines[0]


MISTAKES = {
    "syntax error": ("numbers.map('x',, 1)\n", ("p.py:12", "SyntaxError")),
    "no sink": ("numbers.map('double', lambda r: r)\n", ("double", "sink")),
    "unknown operator": ("numbers.mapp('double', lambda r: r).sink('out', out)\n", ("p.py:12", "mapp")),
    "cycle": (
        "a = numbers.map('a', lambda r: r)\nb = a.map('b', lambda r: r)\na.union(b).sink('out', out)\nb.feed(a)\n",
        ("p.py:15", "feed"),
    ),
    "no such directory": ("numbers.sink('out', SqliteSink('absent/out.db'))\n", ("absent", "directory")),
    "a directory as a file": (
        "numbers.sink('out', SqliteSink('.'))\n",
        ("SqliteSink", "not a writable file", "another path"),
    ),
    "the pipeline itself raises": ("1 / 0\n", ("p.py:12", "ZeroDivisionError")),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_pipeline_with_a_mistake_is_refused(tmp_path: Path, name: str) -> None:
    body, parts = MISTAKES[name]
    status, said = causal(tmp_path, "run", str(written(tmp_path, body)))
    line = one_line(said)
    assert status == 2 and all(part in line for part in parts), line


FAILURES = {
    "a function raises": (
        "numbers.map('half', lambda r: 1 / (r['i'] - 500)).sink('out', out)\n",
        ("half", "position 500", "ZeroDivisionError", "'i': 500", "dead-letter"),
    ),
    "a keyed operator raises": (
        "class Odd(Operator):\n"
        "    def process(self, record, ctx):\n"
        "        if record['i'] == 301:\n"
        "            raise ValueError('odd one out')\n"
        "        yield record\n"
        "numbers.key_by(lambda r: r['k']).process('odd', Odd()).sink('out', out)\n",
        ("odd", "key 1", "position 301", "odd one out", "'i': 301"),
    ),
    "a record that cannot be serialised": (
        "numbers.map('sets', lambda r: {r['i']} if r['i'] == 77 else r)"
        ".key_by(lambda r: 1).process('same', Operator()).sink('out', out)\n",
        ("sets", "77", "set"),
    ),
    "a record over the limit": (
        "numbers.map('big', lambda r: 'x' * (100_000 if r['i'] == 42 else 1)).sink('out', out)\n",
        ("big", "position 42", "record_bytes_max"),
    ),
}


@pytest.mark.parametrize("name", members(FAILURES, "a keyed operator raises", "a record that cannot be serialised"))
def test_a_record_that_cannot_be_processed_stops_the_job_and_is_named(tmp_path: Path, name: str) -> None:
    body, parts = FAILURES[name]
    written(tmp_path, body.replace("Operator()", "type('Same', (Operator,), {'process': lambda s, r, c: [r]})()"))
    (tmp_path / "limit.toml").write_text("record_bytes_max = 65536\n")
    status, said = causal(tmp_path, "run", "p.py", "--config", "limit.toml", "--state-dir", "job")
    line = one_line(said)
    assert status == 1 and all(part in line for part in parts), line
    assert "failed 5 times" not in line


def test_dead_letters_are_put_aside_exactly_once(start: Start, tmp_path: Path) -> None:
    body = "numbers.map('half', lambda r: {**r, 'v': 7 // (r['i'] % 10)}).sink('out', out)\n"
    gate = tmp_path / "gate"
    job = start(
        written(tmp_path, body, rate="100", gate=gate),
        *("--on-error", "dead-letter", "--kill", "half/0@1.5", "--kill", "dead-letters/0@2.2"),
    )
    report = job.finish_killed(gate)
    assert sorted(recovery["task"] for recovery in report["recoveries"]) == ["dead-letters/0", "half/0"]
    assert [row["i"] for row in lines_in(tmp_path / "rows")] == [i for i in range(1000) if i % 10]
    letters = job.letters()
    assert [(letter["position"], letter["record"]["i"]) for letter in letters] == [(i, i) for i in range(0, 1000, 10)]
    assert {letter["operator"] for letter in letters} == {"half"}
    assert all("ZeroDivisionError" in letter["error"] for letter in letters)


@pytest.mark.parametrize("processes", ["one", "stages"])
def test_dead_letters_of_a_cell_are_counted_apart_from_its_rows(start: Start, tmp_path: Path, processes: str) -> None:
    body = "numbers.map('half', lambda r: {**r, 'v': 7 // (r['i'] % 10)}).sink('out', out)\n"
    gate = tmp_path / "gate"
    job = start(
        written(tmp_path, body, rate="100", gate=gate),
        *("--on-error", "dead-letter", "--processes", processes, "--kill", "half/0@1.5"),
    )
    report = job.finish_killed(gate)
    assert len(job.letters()) == 100 and len(list(lines_in(tmp_path / "rows"))) == 900
    assert (report["records_out"], report["dead_letters"]) == (900, 100)


def test_a_directory_in_which_a_job_runs_is_refused(start: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = start(written(tmp_path, "numbers.sink('out', out)\n", rate="100", gate=gate))
    job.until("it runs", lambda view: view["state"] == "running")
    for more in ((), ("--resume",)):
        status, said = causal(tmp_path, "run", "p.py", "--state-dir", str(job.state), *more)
        line = one_line(said)
        assert status == 2 and str(job.state) in line and "--state-dir" in line
    gate.touch()
    job.finish_well()
    assert len((tmp_path / "rows" / "out-0.jsonl").read_text().splitlines()) == 1000


def test_an_output_that_becomes_unwritable_stops_the_job_and_is_named(start: Start, tmp_path: Path) -> None:
    pipeline = written(tmp_path, "numbers.sink('out', out)\n", rate="100", gate=tmp_path / "gate")
    job = start(pipeline, config={"sink_retry_timeout_s": 2})
    job.until_warm(records=50, checkpoints=0)
    (tmp_path / "rows").rename(tmp_path / "elsewhere")
    (tmp_path / "rows").write_text("no directory")
    kill(job.pid_of("out/0"))
    status, said = job.finish()
    assert status == 1 and str(tmp_path / "rows") in one_line(said)
