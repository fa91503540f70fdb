"""The advice on one process: shown where every task had nothing to do, and one process can perform the job."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.graphs import graph
from causal.topology import Task, Topology
from deploy import plan_command
from deploy.cli import main
from deploy.launching.following import Followed, _conclude
from deploy.launching.local import Outcome
from deploy.progress.idleness import advice_on_idleness
from standby.blueprint import Blueprint
from standby.supervision.job_view import JobView, TaskView


def topology(*operators: tuple[str, ...]) -> Topology:
    names = [f"{each[0]}/{number}" for number, each in enumerate(operators)]
    plain = graph(names, *[(place, place + 1) for place in range(len(names) - 1)])
    tasks = [Task(task.index, task.name, own) for task, own in zip(plain.tasks, operators, strict=True)]
    return Topology(tuple(tasks), plain.channels)


APART = topology(("read",), ("count",), ("out",))
WIDE = topology(("read",), ("count",), ("count",))


def view(*idle_s: float, busy_s: float = 1.0, blocked_s: float = 0.0) -> JobView:
    figures: Any = [{"busy_s": busy_s, "blocked_s": blocked_s, "idle_s": each} for each in idle_s]
    return JobView("job", tasks=[TaskView(f"t/{number}", figures=each) for number, each in enumerate(figures)])


@pytest.mark.parametrize(
    ("seen", "of", "shown"),
    [
        (view(99.0, 30.0, 49.0), APART, "idle for 96 %"),
        (view(99.0, 18.0, 49.0), APART, ""),
        (view(99.0, 30.0, 49.0, blocked_s=5.0), APART, ""),
        (view(3.0, 3.0, 3.0, busy_s=0.0), APART, ""),
        (view(99.0, 99.0, 99.0), WIDE, ""),
        (view(99.0), topology(("read", "out")), ""),
        (view(99.0, 99.0), Topology.grouped(APART, [("one/0", (0, 1)), ("out/2", (2,))]), ""),
        (view(), APART, ""),
    ],
)
def test_the_advice_is_shown_where_it_applies(seen: JobView, of: Topology, shown: str) -> None:
    advice = advice_on_idleness(seen, of)
    assert (shown in advice and "--processes one" in advice) if shown else not advice


def test_the_summary_of_a_run_ends_with_the_advice(tmp_path: Path) -> None:
    followed = Followed(str(tmp_path), "job", "", False, 1, [], 0, small=False, alone=True)
    for of, advised in ((APART, True), (WIDE, False)):
        Blueprint(of).save(tmp_path)
        shown = StringIO()
        assert _conclude(Outcome(0, "", view(99.0, 30.0, 49.0), 50.0), followed, shown) == 0
        hint = "hint: each task was idle for 96 % of its time or more; --processes one"
        assert shown.getvalue().splitlines()[-1].startswith(hint) == advised, shown.getvalue()


def test_the_plan_shows_the_advice_of_the_last_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = tmp_path / "idle.py"
    pipeline.write_text(
        "from operators import Pipeline\n"
        "from operators.sinks import JsonLinesSink\n"
        "from operators.sources import GeneratedSource\n"
        "pipeline = Pipeline('idle')\n"
        "pipeline.source('in', GeneratedSource(lambda p, i: i, count=1)).sink('out', JsonLinesSink('rows'))\n"
    )
    figures: Any = {"busy_s": 1.0, "blocked_s": 0.0, "idle_s": 99.0}
    seen = JobView("idle", tasks=[TaskView(name, figures=figures) for name in ("in/0", "out/0")])
    monkeypatch.setattr(plan_command, "latest", lambda job: seen if job.name == "idle" else None)
    assert main(["plan", str(pipeline)]) == 0
    assert "hint: in the last run, each task was idle for 99 %" in capsys.readouterr().out
    assert main(["plan", str(pipeline), "--processes", "one"]) == 0
    assert "hint" not in capsys.readouterr().out
