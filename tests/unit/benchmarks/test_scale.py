"""The costs of a job per task do not depend on how many tasks it has: messages and bytes, which are exact."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.harness.graphs import layered
from benchmarks.harness.measured import series
from benchmarks.harness.runs import RunFailed
from benchmarks.scale import scale
from benchmarks.scale.scale_control import ControlPlane, blocks
from benchmarks.scale.scale_data import Shape, determinants, handshake
from causal.config import JobConfig
from causal.ids import OUTSIDE
from causal.topology import FULL_DEPTH
from tests.members import campaign

CONSTANT = (
    "start_messages_per_task",
    "checkpoint_messages_per_task",
    "failure_messages",
)
"""The very same number at every size."""
NEARLY = (
    "start_bytes_per_task",
    "start_journal_bytes_per_task",
    "steady_bytes_per_task_s",
    "beat_bytes",
    "checkpoint_bytes_per_task",
    "checkpoint_journal_bytes_per_task",
    "failure_bytes",
    "failure_journal_bytes",
    "manifest_bytes_per_task",
    "status_bytes_per_task",
    "journal_kept_bytes_per_task",
)
"""Names grow by a digit where there are ten times as many, and a job has some bytes of its own."""
CPU_S_MAX = 60.0


@pytest.fixture(scope="module", params=[(10, 20), campaign((10, 20, 40))], ids=len)
def sizes(request: pytest.FixtureRequest) -> dict[int, dict[str, float]]:
    """Tasks → the figures of a job with that number of tasks."""
    return {tasks: scale.control(tasks, CPU_S_MAX) for tasks in request.param}


@pytest.fixture
def control_plane() -> Iterator[Callable[[int], ControlPlane]]:
    """Makes control planes of this many blocks, up and quiet."""
    planes: list[ControlPlane] = []

    def make(count: int) -> ControlPlane:
        planes.append(ControlPlane(blocks(count)))
        planes[-1].start()
        return planes[-1]

    yield make
    for plane in planes:
        plane.close()


Make = Callable[[int], ControlPlane]


def test_messages_per_task_do_not_depend_on_the_size_of_the_job(sizes: dict[int, dict[str, float]]) -> None:
    for name in CONSTANT:
        assert len({figures[name] for figures in sizes.values()}) == 1, (
            name,
            [figures[name] for figures in sizes.values()],
        )


def test_bytes_per_task_do_not_depend_on_the_size_of_the_job(sizes: dict[int, dict[str, float]]) -> None:
    smaller, larger = sorted(sizes)[-2:]
    for name in NEARLY:
        small, large = sizes[smaller][name], sizes[larger][name]
        assert 0 < large <= small * 1.05, (name, small, large)


def test_a_failure_of_one_task_is_told_to_its_neighbours_only(control_plane: Make) -> None:
    plane = control_plane(4)
    plane.quiet()
    with plane.phase() as tally:
        plane.fail("count/0")
    assert tally.messages["promote"] == 1 and tally.messages["exited"] == 1
    assert tally.messages["peer"] == 3, "two sources and a sink"
    assert plane.supervision.assignments.tasks["count/0"].incarnation == 2
    assert all(seat.incarnation == 1 for name, seat in plane.supervision.assignments.tasks.items() if name != "count/0")


def test_a_checkpoint_is_complete_and_every_standby_has_it(control_plane: Make) -> None:
    plane = control_plane(2)
    with plane.phase() as tally:
        plane.checkpoint()
        plane.quiet()
    assert plane.supervision.coordinator.complete == 1
    assert tally.messages["snapshot"] == tally.messages["follow"] == tally.messages["completed"] == 10
    assert {slot.followed for slot in plane.supervision.assignments.slots.values() if not slot.task} == {1}


def test_a_new_supervisor_knows_the_job_from_its_journal(control_plane: Make) -> None:
    plane = control_plane(2)
    plane.checkpoint()
    before = {name: (seat.slot, seat.incarnation) for name, seat in plane.supervision.assignments.tasks.items()}
    plane.restart()
    after = {name: (seat.slot, seat.incarnation) for name, seat in plane.supervision.assignments.tasks.items()}
    assert after == before and plane.supervision.coordinator.complete == 1


def test_a_control_plane_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(RunFailed, match="10 tasks take the supervisor more CPU time than --cpu-max allows"):
        ControlPlane(blocks(2), cpu_s_max=0.000_001)


def test_the_graphs_are_what_their_names_say() -> None:
    graph = blocks(2)
    assert [graph.is_source(task.index) for task in graph.tasks[:5]] == [True, True, False, False, False]
    assert [len(graph.inputs(task.index)) for task in graph.tasks[5:]] == [1, 1, 2, 2, 2]
    assert sorted(c.partition for c in graph.channels if c.source == OUTSIDE) == [0, 1, 2, 3]
    spread = layered((2, 3, 1))
    assert [len(spread.upstream(task.index)) for task in spread.tasks] == [0, 0, 2, 2, 2, 3]
    shape = Shape(3, 4, 2).plan(JobConfig("r", "n", "/p.py"), 100).topology
    assert len(shape.tasks) == 4 + 2 + 2 + 1


def test_determinants_grow_with_depth_and_handshakes_with_fan_in() -> None:
    shallow, deep = (determinants(Shape(hops, 2), FULL_DEPTH, 2_000, 100) for hops in (2, 5))
    assert 0 < shallow["wire_per_frame"] < deep["wire_per_frame"]
    assert shallow["connect_bytes_per_channel"] == deep["connect_bytes_per_channel"] > 0
    few, many = (handshake(Shape(2, fan_in), 1, 500 * fan_in, 50) for fan_in in (2, 8))
    assert many["failure_messages"] - few["failure_messages"] == 2 * (8 - 2), "a HELLO and a WELCOME per channel"
    assert few["failure_hello_bytes"] < many["failure_hello_bytes"]


def test_figures_of_the_data_plane_are_the_same_in_every_run() -> None:
    first, second = (determinants(Shape(3, 2), 1, 2_000, 100) for _ in range(2))
    assert first == second


def test_sizes_that_are_none_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    scale.BENCHMARK.add_options(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--sizes", "7"])
    assert "give multiples of 5" in capsys.readouterr().err


def test_a_series_is_in_the_order_of_its_numbers() -> None:
    figures: dict[str, Any] = {
        f"control.{size}.{name}": {"median": size} for size in (100, 10, 1000) for name in ("a", "b")
    }
    assert series(figures, "control", "b") == ([10, 100, 1000], [10.0, 100.0, 1000.0])
