"""`causal rescale --auto`: what is measured, when a decision is due, and how its outcome is reported."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.graphs import graph
from causal.errors import PipelineError, Unavailable
from causal.topology import Task, Topology
from deploy.changes import automatic
from deploy.changes.conversation import Refused
from deploy.changes.next_version import Changed
from deploy.changes.scaling import REST_MAX_S, Bounds, Decision, Load, Sample, Scaling, Spent, Thresholds
from standby.blueprint import Blueprint
from standby.supervision.job_view import CheckpointView, JobView, TaskView

RULE = Thresholds(busy=0.8, idle=0.3, for_s=30.0)
BOUNDS = Bounds(1, 8)


def sampled(at_s: float, *shares: float, incarnation: int = 1, late_s: float = 0.0, **others: float) -> Sample:
    """Return a sample of a job whose tasks have worked for these shares of their time since 0.

    Args:
        shares: those of the tasks of `count`.
        late_s: the time for which no task has reported.
        others: the share of the only task of another operator.
    """
    loads = {"count": Load(len(shares), [Spent(each * (at_s - late_s), at_s - late_s) for each in shares])}
    loads |= {name: Load(1, [Spent(share * at_s, at_s)]) for name, share in others.items()}
    return Sample(at_s, (incarnation,) * len(shares), loads)


def last_of(scaling: Scaling, times: Sequence[float], *shares: float, **facts: Any) -> Decision | None:
    """Return the decision after the last of several samples, before which there is none."""
    *before, last = times
    assert [scaling.take(sampled(at_s, *shares, **facts)) for at_s in before] == [None] * len(before)
    return scaling.take(sampled(last, *shares, **facts))


@pytest.mark.parametrize(
    ("shares", "tasks"),
    [
        ((0.81,), 2),
        ((0.8,), None),
        ((1.0, 0.7, 0.8), 6),
        ((1.0, 1.0, 0.3), None),
        ((1.0,) * 5, 8),
        ((1.0,) * 8, None),
        ((0.29,) * 2, 1),
        ((0.31,) * 2, None),
        ((0.29,) * 3, 2),
        ((0.29,) * 5, 3),
        ((0.0,), None),
        ((1.0, 0.0, 0.0, 0.0), None),
        ((0.79, 0.0, 0.0, 0.0), 2),
    ],
)
def test_the_mean_share_of_working_time_decides(shares: tuple[float, ...], tasks: int | None) -> None:
    decision = last_of(Scaling(RULE, {"count": BOUNDS}), [0, 10, 29, 30], *shares)
    assert (decision and decision.tasks) == tasks


@pytest.mark.parametrize(("share", "tasks"), [(0.35, 1), (0.37, None)])
def test_an_operator_shrinks_only_if_it_is_not_nearly_busy_then(share: float, tasks: int | None) -> None:
    rule = Thresholds(busy=0.8, idle=0.5, for_s=30.0)
    decision = last_of(Scaling(rule, {"count": BOUNDS}), [0, 30], share, share)
    assert (decision and decision.tasks) == tasks


def test_an_operator_outside_of_its_bounds_is_brought_into_them_immediately() -> None:
    above, below = (
        Scaling(RULE, {"count": bounds}).take(sampled(0, 0.5, 0.5)) for bounds in (Bounds(1, 1), Bounds(3, 9))
    )
    assert above is not None and above.tasks == 1
    assert below is not None and below.tasks == 3 and "2, outside 3..9" in below.reason


def test_only_the_last_seconds_count() -> None:
    scaling = Scaling(RULE, {"count": BOUNDS})
    for at_s in range(100):
        assert scaling.take(sampled(at_s, 0.5)) is None
    spent = 0.5 * 99
    for at_s in range(100, 160):
        spent += 1.0
        if scaling.take(Sample(at_s, (1,), {"count": Load(1, [Spent(spent, at_s)])})) is not None:
            break
    assert at_s == 99 + 19, "19 of the last 30 seconds are the first that raise the mean above 0.8"


def test_samples_are_kept_for_that_time_only_and_at_intervals() -> None:
    scaling = Scaling(RULE, {"count": BOUNDS})
    for number in range(10_000):
        scaling.take(sampled(number / 100, 0.5))
    assert len(scaling._samples) <= 62


@pytest.mark.parametrize("interrupted", [False, True])
def test_figures_from_before_a_recovery_or_a_change_are_not_used(interrupted: bool) -> None:
    scaling = Scaling(RULE, {"count": BOUNDS})
    assert scaling.take(sampled(0, 1.0)) is None
    if interrupted:
        scaling.interrupt()
    incarnation = 1 if interrupted else 2
    assert last_of(scaling, [10, 30, 39.9], 1.0, incarnation=incarnation) is None
    assert scaling.take(sampled(40.5, 1.0, incarnation=incarnation)) is not None


def test_time_that_was_not_reported_says_nothing() -> None:
    scaling = Scaling(RULE, {"count": BOUNDS})
    assert scaling.take(sampled(0, 1.0)) is None
    assert scaling.take(sampled(30, 1.0, late_s=16)) is None, "the process reports too rarely"
    assert scaling.take(sampled(31, 1.0)) is not None
    scaling.interrupt()
    assert scaling.take(sampled(1000, 1.0, late_s=1000)) is None, "the supervisor has just started"
    assert scaling.take(sampled(1030, 1.0)) is None


def test_an_operator_rests_after_a_change() -> None:
    scaling = Scaling(RULE, {"count": BOUNDS})
    assert last_of(scaling, [0, 30], 1.0) is not None
    scaling.changed()
    assert last_of(scaling, [40, 69, 70, 85, 99], 1.0, 1.0, incarnation=2) is None
    assert scaling.take(sampled(100, 1.0, 1.0, incarnation=2)) is not None


def test_the_rest_doubles_with_each_failure_up_to_a_bound() -> None:
    scaling, at_s = Scaling(RULE, {"count": Bounds(2, 8)}), 0.0
    rests: list[float] = []
    for _ in range(8):
        assert scaling.take(sampled(at_s, 1.0)) is not None
        rests.append(scaling.failed())
        assert last_of(scaling, [at_s, at_s + rests[-1] - 1], 1.0) is None
        at_s += rests[-1]
    assert rests == [60, 120, 240, 480, REST_MAX_S, REST_MAX_S, REST_MAX_S, REST_MAX_S]
    scaling.changed()
    assert scaling.failed() == 60


def test_operators_change_one_at_a_time_and_busy_ones_first() -> None:
    scaling = Scaling(RULE, {"count": BOUNDS, "score": BOUNDS})
    decision = last_of(scaling, [0, 30], 0.1, 0.1, score=0.9)
    assert decision is not None and (decision.operator, decision.tasks) == ("score", 2)
    scaling.changed()
    decision = last_of(scaling, [40, 70, 100], 0.1, 0.1, score=0.5)
    assert decision is not None and (decision.operator, decision.tasks) == ("count", 1)


# The command.


@pytest.mark.parametrize(
    ("item", "part"),
    [
        ("count", "use OPERATOR=MIN..MAX"),
        ("count=4", "use OPERATOR=MIN..MAX"),
        ("count=..4", "use OPERATOR=MIN..MAX"),
        ("count=1..", "use OPERATOR=MIN..MAX"),
        ("count=0..4", "use OPERATOR=MIN..MAX"),
        ("count=-1..4", "use OPERATOR=MIN..MAX"),
        ("count=1...4", "use OPERATOR=MIN..MAX"),
        ("count=a..4", "use OPERATOR=MIN..MAX"),
        ("count=1..1000000000", "use OPERATOR=MIN..MAX"),
        ("=1..4", "use OPERATOR=MIN..MAX"),
        ("count=5..4", "exchange them"),
    ],
)
def test_a_wrong_range_is_refused(item: str, part: str) -> None:
    with pytest.raises(PipelineError, match="--auto ") as refusal:
        automatic.bounds_of(["other=1..2", item])
    assert part in str(refusal.value) and "\n" not in str(refusal.value)


def test_the_last_range_of_an_operator_counts() -> None:
    assert automatic.bounds_of(["a=1..2", "b=3..3", "a=1..4"]) == {"a": Bounds(1, 4), "b": Bounds(3, 3)}


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("operators", nargs="*")
    automatic.add_options(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    "words",
    [
        ("--busy", "1"), ("--busy", "0"), ("--busy", "nan"), ("--busy", "80"), ("--busy", "0.3"), ("--idle", "0.8"),
        ("--idle", "-0.1"), ("--idle", "nan"), ("--for", "0"), ("--for", "nan"), ("--for", "inf"), ("--for", "86401"),
    ],
)  # fmt: skip
def test_wrong_thresholds_are_refused(words: tuple[str, str]) -> None:
    with pytest.raises(PipelineError, match="^--(busy|idle|for) "):
        automatic.thresholds_of(parsed(*words))


def test_thresholds_that_are_not_stated_are_the_usual_ones() -> None:
    assert automatic.thresholds_of(parsed()) == Thresholds()
    assert automatic.thresholds_of(parsed("--idle", "0", "--for", "5")) == Thresholds(0.8, 0.0, 5.0)


@pytest.mark.parametrize(
    ("words", "part"),
    [(("--busy", "0.7", "a=1"), "--busy is an option"), (("--for", "5"), "--for"), (("a=1..4",), "add --auto")],
)
def test_what_only_auto_uses_is_refused_without_it(words: tuple[str, ...], part: str) -> None:
    with pytest.raises(PipelineError, match=part):
        automatic.check_absent(parsed(*words))
    automatic.check_absent(parsed("a=1"))


def topology() -> Topology:
    plain = graph(["read/0", "count/0", "count/1"], (0, 1), (0, 2))
    operators = [("read",), ("count",), ("count",)]
    tasks = [Task(task.index, task.name, own) for task, own in zip(plain.tasks, operators, strict=True)]
    return Topology(tuple(tasks), plain.channels)


TIMES: Any = {"busy_s": 2.0, "blocked_s": 3.0, "idle_s": 5.0}


def view(at_ns: int = 10**9, complete: int = 1, state: str = "running", **states: str) -> JobView:
    tasks = [
        TaskView(f"{name}/{index}", state=states.get(f"{name}{index}", "running"), incarnation=3, figures=TIMES)
        for name, index in (("read", 0), ("count", 0), ("count", 1))
    ]
    return JobView("job", state=state, at_ns=at_ns, tasks=tasks, checkpoint=CheckpointView(complete))


def test_a_sample_has_the_time_that_the_tasks_of_an_operator_have_worked_and_waited() -> None:
    sample = automatic.sample(view(), topology(), ["count"])
    assert sample == Sample(1.0, (3, 3, 3), {"count": Load(2, [Spent(2.0, 10.0)] * 2)})
    cells = Topology.grouped(topology(), [("read/0", (0,)), ("count", (1, 2))])
    both = JobView("job", state="running", checkpoint=CheckpointView(1), tasks=[
        TaskView(name, state="running", figures=TIMES) for name in ("read/0", "count")
    ])  # fmt: skip
    sample = automatic.sample(both, cells, ["count"])
    assert sample is not None and sample.loads == {"count": Load(2, [Spent(2.0, 10.0)])}


@pytest.mark.parametrize(
    "seen",
    [
        view(complete=0),
        view(state="recovering"),
        view(state="stopping"),
        view(read0="replaying"),
        view(count1="loading"),
        JobView("job", state="running", checkpoint=CheckpointView(1), tasks=view().tasks[:2]),
    ],
)
def test_there_is_no_sample_while_a_task_recovers_or_the_job_changes(seen: JobView) -> None:
    assert automatic.sample(seen, topology(), ["count"]) is None


class Watched:
    """A job that ends after some looks, and the outcomes of its changes.

    Attributes:
        numbers: the numbers of tasks that were tried.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, job: Path, *outcomes: Changed | Exception | None) -> None:
        self.job, self._outcomes, self._looks = job, list(outcomes), 0
        self.numbers: list[Mapping[str, str]] = []
        Blueprint(topology()).save(job)
        monkeypatch.setattr(automatic, "LOOK_S", 0)
        monkeypatch.setattr(automatic, "running", lambda job: bool(self._outcomes))
        monkeypatch.setattr(automatic, "latest", self._latest)

    def _latest(self, job: Path) -> JobView:
        self._looks += 1
        return view(self._looks * 600 * 10**9)

    def watch(self) -> None:
        automatic.watch(self.job, Scaling(RULE, {"count": Bounds(3, 4)}), self._rescale)

    def _rescale(self, numbers: Mapping[str, str]) -> Changed | None:
        self.numbers.append(numbers)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def test_changes_are_reported_until_the_job_ends_and_the_savepoint_of_the_last_one_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("1-x", "2-x", "3-user"):
        (tmp_path / "savepoints" / name).mkdir(parents=True)
    changes = [Changed(0.25, savepoint="1-x"), None, Refused("another change"), Changed(0.5, savepoint="2-x")]
    watched = Watched(monkeypatch, tmp_path, *changes, Unavailable("no answer"), OSError(28, "disk full"))
    watched.watch()
    assert watched.numbers == [{"count": "3"}] * 6
    assert sorted(path.name for path in (tmp_path / "savepoints").iterdir()) == ["2-x", "3-user"]
    out, err = capsys.readouterr()
    assert [line.rpartition(";")[2] for line in out.splitlines()] == [f" the change took 0.{n} s" for n in (25, 50)]
    assert "count has 3 tasks: it had 2, outside 3..4" in out
    assert [line.partition(": ")[2] for line in err.splitlines()] == [
        "count was to have 3 tasks: another change; tried again in 60 s",
        "count was to have 3 tasks: no answer; tried again in 60 s",
    ], "what fails because the job ends is not reported"


def test_an_operator_that_cannot_be_rescaled_ends_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="keeps state per task"):
        Watched(monkeypatch, tmp_path, PipelineError("keeps state per task"), None).watch()
    Watched(monkeypatch, tmp_path, PipelineError("the job is not running")).watch()
