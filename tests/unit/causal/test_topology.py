"""The job graph: neighbours, distances, and who passes on whose determinants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.graphs import graph
from causal.errors import InvariantViolation
from causal.ids import OUTSIDE, ChannelId, TaskIndex, TaskName
from causal.topology import FULL_DEPTH, Channel, Task, Topology


def topology(tasks: int, edges: list[tuple[int, int]]) -> Topology:
    return graph([f"t/{i}" for i in range(tasks)], *edges)


DIAMOND = topology(4, [(-1, 0), (0, 1), (0, 2), (1, 3), (2, 3), (0, 3), (3, -1)])


def test_neighbours_are_in_the_order_of_their_channels() -> None:
    assert [c.id for c in DIAMOND.inputs(TaskIndex(3))] == [3, 4, 5]
    assert [c.id for c in DIAMOND.outputs(TaskIndex(0))] == [1, 2, 5]
    assert DIAMOND.upstream(TaskIndex(3)) == (0, 1, 2)
    assert DIAMOND.downstream(TaskIndex(0)) == (1, 2, 3)
    assert DIAMOND.upstream(TaskIndex(0)) == DIAMOND.downstream(TaskIndex(3)) == ()


def test_ends_of_the_graph() -> None:
    assert [DIAMOND.is_source(t.index) for t in DIAMOND.tasks] == [True, False, False, False]
    assert [DIAMOND.is_sink(t.index) for t in DIAMOND.tasks] == [False, False, False, True]
    assert DIAMOND.named("t/2") is DIAMOND.tasks[2]
    assert DIAMOND.named("t/9") is None


def test_channels_connect_tasks_in_both_directions_and_stores_connect_none() -> None:
    assert DIAMOND.components == ((0, 1, 2, 3),)
    two = topology(6, [(-1, 0), (-1, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, -1), (5, -1)])
    assert two.components == ((0, 2, 4), (1, 3, 5))
    joined = topology(6, [(-1, 0), (-1, 1), (0, 2), (1, 3), (2, 4), (3, 4), (4, -1), (-1, 5), (5, -1)])
    assert joined.components == ((0, 1, 2, 3, 4), (5,))
    late = topology(5, [(0, 3), (1, 4), (3, 4)])  # what connects two comes last
    assert late.components == ((0, 1, 3, 4), (2,))


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_a_component_is_what_is_reached_from_any_of_its_tasks(drawn: tuple[int, list[tuple[int, int]]]) -> None:
    tasks, pairs = drawn
    edges = [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]]
    components = topology(tasks, edges).components
    assert sorted(task for component in components for task in component) == list(range(tasks))
    assert [component[0] for component in components] == sorted(component[0] for component in components)
    for component in components:
        reached: set[int] = {component[0]}
        for _ in range(tasks):
            reached |= {b for a, b in edges if a in reached} | {a for a, b in edges if b in reached}
        assert sorted(reached) == list(component)


def test_distance_is_the_shortest() -> None:
    assert DIAMOND.ancestors(TaskIndex(3)) == {0: 1, 1: 1, 2: 1}
    chain = topology(4, [(0, 1), (1, 2), (2, 3)])
    assert chain.ancestors(TaskIndex(3)) == {2: 1, 1: 2, 0: 3}


def test_a_log_reaches_the_tasks_up_to_the_depth_downstream() -> None:
    chain = topology(4, [(0, 1), (1, 2), (2, 3)])
    assert chain.shared_by(TaskIndex(3), 0) == ()
    assert chain.shared_by(TaskIndex(3), 1) == (3,)
    assert chain.shared_by(TaskIndex(3), 2) == (2, 3)
    assert chain.shared_by(TaskIndex(3), FULL_DEPTH) == (0, 1, 2, 3)


@pytest.mark.parametrize("edge", [(1, 0), (1, 1)])
def test_a_cycle_cannot_be_stated(edge: tuple[int, int]) -> None:
    with pytest.raises(InvariantViolation, match="topological order"):
        topology(2, [(0, 1), edge])


def test_indices_are_places() -> None:
    with pytest.raises(InvariantViolation):
        Topology((Task(TaskIndex(1), TaskName("t/1")),), ())
    with pytest.raises(InvariantViolation):
        Topology((Task(TaskIndex(0), TaskName("t/0")),), (Channel(ChannelId(3), OUTSIDE, TaskIndex(0)),))


edges = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda edge: edge[0] < edge[1]), max_size=14, unique=True
)


@given(edges)
def test_ancestors_are_what_a_walk_finds(drawn: list[tuple[int, int]]) -> None:
    graph = topology(7, drawn)
    for task in graph.tasks:
        distance = {task.index: 0}
        for _ in range(7):
            for source, target in drawn:
                if target in distance:
                    near = distance[TaskIndex(target)] + 1
                    distance[TaskIndex(source)] = min(near, distance.get(TaskIndex(source), near))
        del distance[task.index]
        assert graph.ancestors(task.index) == distance
        shares = [graph.shared_by(task.index, depth) for depth in range(9)]
        for depth, shared in enumerate(shares[1:], 1):
            assert shared == tuple(sorted([task.index, *(t for t, hops in distance.items() if hops < depth)]))
