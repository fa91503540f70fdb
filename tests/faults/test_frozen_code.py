"""The code of a run is part of the run: changes of files while it runs, or before it is resumed, have no effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.harness.written import records_in
from tests.faults.conftest import Start
from tests.faults.job import Job, causal_output
from tests.faults.test_bad_input import one_line

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


EDITS: tuple[tuple[str, Callable[[Path], object]], ...] = (
    ("count/0", lambda home: (home / "lazily.py").write_text("ZERO = 100\n")),
    ("count/0", lambda home: (home / "steps.py").write_text("STEP = 100\n")),
    ("out/0", lambda home: (home / "counts.py").write_text(PAUSED_PIPELINE.replace("+ STEP", "+ 100"))),
    ("count/1", lambda home: (home / "counts.py").write_text(PAUSED_PIPELINE.replace("ism=2", "ism=3"))),
    ("count/0", lambda home: (home / "counts.py").write_text(PAUSED_PIPELINE + "\nif\n")),
    ("numbers/0", lambda home: (home / "counts.py").unlink()),
)
"""Edits, one after the other, and the task that is killed after each."""


@pytest.mark.campaign
def test_edits_while_the_job_runs_have_no_effect(start: Start, tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(PAUSED_PIPELINE)
    gate = tmp_path / "gate"  # the job does not end before the last kill, however slow the machine is
    job = start(path, "--checkpoint-interval", "0.5", "--set", f"gate={gate}", "--set", "count=1500")
    job.until_warm()
    for task, edit in EDITS:
        edit(tmp_path)
        replaced(job, task)
    status = causal_output(tmp_path, "status", "--state-dir", str(job.state))
    [changed] = [line for line in status.splitlines() if "changed since the start: " in line]
    assert all(name in changed for name in ("counts.py", "lazily.py", "steps.py"))
    gate.touch()
    job.finish_well()
    check(tmp_path, 1500)


BEFORE_A_RESUME: tuple[tuple[Callable[[Path], object], str], ...] = (
    (lambda home: (home / "steps.py").write_text("STEP = 100\n"), "steps.py changed since this run started"),
    (lambda home: (home / "counts.py").write_text("if\n"), "--code kept"),
    (lambda home: (home / "counts.py").unlink(), "--code kept"),
)


def test_a_run_is_resumed_with_its_own_code_and_no_other_contradicts_what_is_visible(
    start: Start, tmp_path: Path
) -> None:
    path = written(tmp_path)
    job = start(path, "--checkpoint-interval", "30")
    job.until_written(500)
    job.kill_everything()
    for edit, words in BEFORE_A_RESUME:
        edit(tmp_path)
        status, said = job.start("--resume").finish()
        assert status == 2 and words in one_line(said)
    path.write_text(PIPELINE)
    for step in (100, 1000):
        (tmp_path / "steps.py").write_text(f"STEP = {step}\n")
        status, said = job.start("--resume", "--code", "new").finish()
        line = one_line(said)
        assert status == 1 and "ReplayDivergence: " in line
        assert line.startswith(
            "causal: job counts: its code or settings were changed; resume with the earlier code and settings: causal "
            "run counts.py "
        )
        assert "--resume --state-dir job --code kept; " in line
    path.unlink()
    job.start("--resume", "--code", "kept").finish_well()
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
