"""The tasks that have hot standbys: all after the sources, or those of the operators that are named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from causal.config import JobConfig
from causal.errors import PipelineError
from causal.logs.rollback import OrphanAnswer
from operators import Pipeline
from operators.engine.plan import plan
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from standby.supervision import events
from standby.supervision.supervision import hot_tasks
from tests.unit.standby.scene import Scene, running, sent

CONFIG = JobConfig(run="r", name="n", pipeline="p")


def planned(standbys: str) -> Any:
    pipeline = Pipeline("counts")
    numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: {"k": i}, count=1))
    numbers.key_by(lambda r: r["k"]).count("count", parallelism=2).sink("out", SqliteSink("out.db"))
    return plan(pipeline, replace(CONFIG, standbys=standbys))


@pytest.mark.parametrize(
    "standbys, tasks",
    [
        ("hot", {"count/0", "count/1", "out/0"}),
        ("hot:count", {"count/0", "count/1"}),
        ("hot:out,count", {"count/0", "count/1", "out/0"}),
        ("per-task", set()),
        ("3", set()),
    ],
)
def test_they_are_those_behind_the_sources_or_of_the_operators_that_are_named(standbys: str, tasks: set[str]) -> None:
    assert hot_tasks(replace(CONFIG, standbys=standbys), planned(standbys).topology) == tasks


@pytest.mark.parametrize("name", ["numbers", "cuont", ""])
def test_a_name_that_is_no_operator_behind_a_source_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(PipelineError, match=r"standbys.*(count, out|hot:OPERATOR)"):
        planned(f"hot:{name}")


@pytest.mark.parametrize("standbys", ["hot:", "hott", "hot,count", "-1", ""])
def test_what_is_no_kind_of_standbys_is_refused(standbys: str) -> None:
    with pytest.raises(PipelineError, match="standbys"):
        replace(CONFIG, standbys=standbys)


def test_without_a_log_nothing_can_be_performed_from_it() -> None:
    with pytest.raises(PipelineError, match="guarantee"):
        replace(CONFIG, standbys="hot", guarantee="epoch")


def rolled_back_in_place(scene: Scene, task: str) -> None:
    """Make a task go back in place after the loss of determinants that it depends on."""
    count = scene.supervision.assignments.tasks[task]
    scene.beat(count.slot, lost=((1, 1, 5),))
    for entry in scene.supervision.assignments.tasks.values():
        depends = (1, 1, 5) if entry.name == task else None
        scene.step(events.OrphanReport(entry.slot, entry.name, entry.incarnation, 1, OrphanAnswer(True, depends, ())))
    scene.living[count.slot]["incarnation"] = count.incarnation


def test_the_standby_of_a_task_that_goes_back_in_place_follows_its_new_incarnation_until_it_says_so() -> None:
    scene = running(standbys="hot", checkpoint_interval_s=3600.0)
    standby = scene.supervision.assignments.idle("count/0")
    assert standby is not None
    rolled_back_in_place(scene, "count/0")
    assert scene.incarnation_of("count/0") == 2
    scene.idle(1000)
    for _ in range(2):  # a message that is lost is repeated
        heard = scene.beat(standby.name, 1100, shadow={"epoch": 0, "incarnation": 1, "behind": 0, "compared": 0})
        assert [m["incarnation"] for slot, m in sent(heard, "follow") if slot == standby.name] == [2]
    follows = {"epoch": 0, "incarnation": 2, "behind": 0, "compared": 0}
    heard = scene.beat(standby.name, 1100, shadow=follows) + scene.beat(standby.name, 1100, shadow=follows)
    assert not sent(heard, "follow")


def peers_of(heard: list[Any], slot: str) -> list[Any]:
    return [message.get("peers", {}) for to, message in sent(heard, "follow") if to == slot]


def test_a_hot_standby_hears_of_the_neighbours_downstream_and_of_their_successors() -> None:
    scene = running(standbys="hot", checkpoint_interval_s=3600.0)
    standby, out = scene.standby_of("count/0"), scene.supervision.assignments.tasks["out/0"]
    scene.idle(1000)
    scene.supervision.assignments.slots[standby].following = None
    heard = scene.beat(standby, 1100)
    assert peers_of(heard, standby) == [{"out/0": [f"ipc:///x/{out.slot}", 1]}]
    heard = scene.die(out.slot) + scene.idle(1500)
    assert peers_of(heard, standby)[-1:] == [{"out/0": [f"ipc:///x/{out.slot}", 2]}]


def test_a_passive_standby_hears_of_none() -> None:
    scene = running(standbys="hot:out", checkpoint_interval_s=3600.0)
    standby = scene.standby_of("count/0")
    scene.idle(1000)
    scene.supervision.assignments.slots[standby].following = None
    assert peers_of(scene.beat(standby, 1100), standby) == [{}]
