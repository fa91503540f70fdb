"""The code of a run is part of the run: changes of files while it runs, or before it is resumed, have no effect."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.harness.written import records_in
from tests.faults.conftest import Start
from tests.faults.job import Job, causal_output
from tests.faults.test_bad_input import one_line
from tests.members import members

PIPELINE = """
from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from steps import STEP

class Count(Operator):
    def process(self, record, ctx):
        from lazily import ZERO
        n = ctx.state["n"] = ctx.state.get("n", 0) + STEP + ZERO
        yield {"key": ctx.key, "n": n, "at": ctx.now()}

pipeline = Pipeline("counts")
settings = pipeline.settings
source = GeneratedSource(lambda p, i: {"k": i % 20}, count=int(settings.get("count", 3000)), rate=500)
numbers = pipeline.source("numbers", source)
numbers.key_by(lambda r: r["k"]).process("count", Count(), parallelism=2).sink("out", SqliteSink("out.db"))
"""

PAUSED_PIPELINE = PIPELINE.replace(
    "from steps", "from tests.faults.pipelines.held_source import hold_end\nfrom steps"
).replace('"numbers", source)', '"numbers", hold_end(source, settings["gate"]))')
"""The same, and its last record waits for the gate, a file."""


def written(directory: Path) -> Path:
    (directory / "steps.py").write_text("STEP = 1\n")
    (directory / "lazily.py").write_text("ZERO = 0\n")
    (directory / "counts.py").write_text(PIPELINE)
    return directory / "counts.py"


def check(directory: Path, count: int = 3000) -> None:
    rows = records_in(directory / "out.db")
    assert Counter((row["key"], row["n"]) for row in rows) == {(i % 20, 1 + i // 20): 1 for i in range(count)}


def replaced(job: Job, task: str) -> None:
    """Kill the task; the next call kills the successor, whose place a standby takes that was started meanwhile."""
    job.until_warm()
    job.replace(task)


EDITS = ["constant", "module", "lazy module", "parallelism", "syntax error", "deleted"]


@pytest.mark.parametrize("edit", members(EDITS, "lazy module", "syntax error"))
def test_an_edit_while_the_job_runs_has_no_effect(start: Start, tmp_path: Path, edit: str) -> None:
    path = written(tmp_path)
    path.write_text(PAUSED_PIPELINE)
    gate = tmp_path / "gate"  # the job does not end before the last kill, however slow the machine is
    job = start(path, "--checkpoint-interval", "0.5", "--set", f"gate={gate}", "--set", "count=1500")
    job.until_warm()
    name = "counts.py"
    if edit == "constant":
        path.write_text(PAUSED_PIPELINE.replace("+ STEP", "+ 100"))
    elif edit == "module":
        name = "steps.py"
        (tmp_path / name).write_text("STEP = 100\n")
    elif edit == "lazy module":
        name = "lazily.py"
        (tmp_path / name).write_text("ZERO = 100\n")
    elif edit == "parallelism":
        path.write_text(PAUSED_PIPELINE.replace("parallelism=2", "parallelism=3"))
    elif edit == "syntax error":
        path.write_text(PAUSED_PIPELINE + "\nif\n")
    else:
        path.unlink()
    for task in ("count/0", "count/0", "out/0", "numbers/0"):
        replaced(job, task)
    assert f"changed since the start: {name}" in causal_output(tmp_path, "status", "--state-dir", str(job.state))
    gate.touch()
    job.finish_well()
    check(tmp_path, 1500)


def test_an_interrupted_run_is_not_replayed_by_other_code(start: Start, tmp_path: Path) -> None:
    path = written(tmp_path)
    job = start(path, "--checkpoint-interval", "0.5")
    job.until_warm(records=300)
    job.kill_everything()
    (tmp_path / "steps.py").write_text("STEP = 100\n")
    job.start("--resume")
    status, said = job.finish()
    assert status == 2
    assert "steps.py changed since this run began" in one_line(said) and "causal savepoint --stop" in said
    job.start("--resume", "--code", "kept")
    job.finish_well()
    check(tmp_path)


@pytest.mark.parametrize("edit", members(["syntax error", "deleted"], "deleted"))
def test_code_that_cannot_be_loaded_any_more_is_still_in_the_archive(start: Start, tmp_path: Path, edit: str) -> None:
    path = written(tmp_path)
    job = start(path, "--checkpoint-interval", "0.5")
    job.until_warm(records=300)
    job.kill_everything()
    if edit == "deleted":
        path.unlink()
    else:
        path.write_text("if\n")
    job.start("--resume")
    status, said = job.finish()
    assert status == 2 and "--code kept" in one_line(said)
    job.start("--resume", "--code", "kept")
    job.finish_well()
    check(tmp_path)


@pytest.mark.campaign
def test_comments_and_layout_are_no_change(start: Start, tmp_path: Path) -> None:
    path = written(tmp_path)
    job = start(path, "--checkpoint-interval", "0.5")
    job.until_warm(records=300)
    job.interrupt()
    assert job.finish()[0] == 130
    path.write_text("# a comment\n" + PIPELINE.replace("n = ctx.state", "n  =  ctx.state"))
    job.start("--resume")
    job.finish_well()
    check(tmp_path)


@pytest.mark.campaign
def test_a_mistake_that_raises_is_put_right_with_new_code(start: Start, tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(
        PIPELINE.replace("yield", "if n == 20 and ctx.key == 7:\n            raise ValueError(n)\n        yield")
    )
    job = start(path, "--checkpoint-interval", "0.3", "--set", "count=2000")
    status, said = job.finish()
    assert status == 1 and "ValueError" in one_line(said)
    path.write_text(PIPELINE)
    job.start("--resume", "--code", "new")
    job.finish_well()
    check(tmp_path, 2000)


def test_new_code_that_contradicts_what_is_visible_ends_the_job(start: Start, tmp_path: Path) -> None:
    path = written(tmp_path)
    job = start(path, "--checkpoint-interval", "30")
    job.until_written(500)
    job.kill_everything()
    (tmp_path / "steps.py").write_text("STEP = 100\n")
    job.start("--resume", "--code", "new")
    status, said = job.finish()
    line = one_line(said)
    assert status == 1 and "ReplayDivergence: " in line
    assert line.startswith(
        "causal: job counts: its code or settings were changed; resume with those before: causal run counts.py "
    )
    assert "--resume --state-dir job --code kept; " in line
    (tmp_path / "steps.py").write_text("STEP = 1000\n")
    job.start("--resume", "--code", "new")
    status, said = job.finish()
    assert status == 1 and "--code kept; " in one_line(said)
    job.start("--resume", "--code", "kept")
    job.finish_well()
    check(tmp_path)


@pytest.mark.campaign
def test_names_of_ours_and_of_python_beside_the_pipeline_and_in_the_working_directory(
    start: Start, tmp_path: Path
) -> None:
    """`python -m deploy` runs in the pipeline's directory, as it does for every job here."""
    path = written(tmp_path)
    for name in ("operators", "causal", "pyspark_causal", "queue", "random", "socket", "json"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was imported')\n")
    for name in ("standby", "tests", "examples"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("ZERO = 0\n")
    path.write_text(
        "import json, queue, random, socket\nfrom standby import ZERO as A\nfrom tests import ZERO as B\n"
        + PIPELINE.replace("from lazily import ZERO", "from examples import ZERO as C").replace("+ ZERO", "+ A + B + C")
    )
    job = start(path, "--checkpoint-interval", "0.5")
    for task in ("count/0", "count/0", "out/0", "numbers/0"):
        replaced(job, task)
    job.finish_well()
    check(tmp_path)


def test_a_module_of_ours_that_is_meant_to_be_the_users_is_one_line(start: Start, tmp_path: Path) -> None:
    path = written(tmp_path)
    (tmp_path / "operators.py").write_text("MINE = 1\n")
    path.write_text("from operators import MINE\n" + PIPELINE)
    status, said = start(path).finish()
    assert status == 2 and "operators.py has the name of a module of causal-streams" in one_line(said)
