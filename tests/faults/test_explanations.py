"""`causal explain-divergence` of recorded jobs, one for each cause: the cause, the line, and the event are named."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, command, environment
from tests.members import members

DIVERGING = PIPELINES / "diverging.py"
LINES = {
    line.rpartition("# line: ")[2]: number
    for number, line in enumerate(DIVERGING.read_text().splitlines(), 1)
    if "# line: " in line
}
CAUSES = {
    "attribute": ("kept", "attribute `counts` of Diverging changed in process()"),
    "module": ("kept", "global `seen` of diverging.py changed while operators ran"),
    "clock": ("clock", "time.time() is not recorded"),
    "random": ("random", "random() is not recorded"),
    "order": ("order", "the order of a set"),
    "environment": ("environment", "the variable DIVERGING of os.environ is read"),
    "file": ("file", "a file is read"),
}
"""The way of `pipelines/diverging.py` → the kind of the cause, and what is said of it."""


def explained(job: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("explain-divergence", str(job), *options),
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=200,
    )


def recorded(start: Start, directory: Path, how: str) -> Path:
    """Return the directory of a job of several recorded epochs, which has ended well."""
    gate, file = directory / "gate", directory / "rates"
    file.write_text("1")
    settings = sets(how=how, out=directory / "rows", file=file, gate=gate)
    options = ("--record", "1h,1GB", "--checkpoint-interval", "0.2", "--hidden-nondeterminism", "allow")
    job = start(DIVERGING, *settings, *options)
    job.until("some checkpoints are complete", lambda view: view["checkpoint"]["count"] >= 4)
    gate.touch()
    job.finish_well()
    file.write_text("2")
    return job.state


@pytest.mark.parametrize("how", members(CAUSES, "module", "clock"))
def test_the_cause_and_its_line_are_named(start: Start, tmp_path: Path, how: str) -> None:
    job = recorded(start, tmp_path, how)
    done = explained(job, "--json", DIVERGING="2")
    assert done.returncode == 3, done.stdout + done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    kind, what = CAUSES[how]
    assert facts["cause"]["kind"] == kind and what in facts["cause"]["what"], done.stdout
    assert (facts["cause"]["file"], facts["cause"]["line"]) == (str(DIVERGING), LINES[how]), done.stdout
    assert facts["divergence"]["task"] == "diverging/0" and len(facts["performed"]) >= 2
    if how in ("environment", "file"):
        assert facts["value"] is None and facts["event"] is None
        return
    assert facts["operator"] == "diverging" and facts["kind"] == "record" and "'k'" in facts["record"]
    before, after = list(facts["value"].values())[1:]
    assert before != after
    text = explained(job).stdout
    assert f"  cause     {facts['cause']['what']}" in text and f"diverging.py:{LINES[how]} in " in text


def test_a_job_without_a_divergence_is_one_line(start: Start, tmp_path: Path) -> None:
    job = recorded(start, tmp_path, "none")
    done = explained(job)
    assert done.returncode == 0 and "no divergence in" in done.stdout and done.stdout.count("\n") == 1, done.stderr
