"""A preview of placement is what the supervisor does, and a copy on the owner's own host counts zero there."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.graphs import chain_of
from causal.network.roster import Member
from causal.topology import Topology
from standby.blueprint import Constraint
from standby.supervision.preview import copies_at_home, hosts_needed, preview
from tests.unit.standby.host_scene import HostScene, settled

CHAIN = ("read/0", "double/0", "count/0", "out/0")


def members(*names: str, **facts: int) -> list[Member]:
    return [Member(name, "", slots=facts.get(name)) for name in names]


def test_the_preview_is_what_the_supervisor_does() -> None:
    scene = HostScene(*CHAIN)
    scene.beats(8)
    where = preview(chain_of(*CHAIN), {}, members("a", "b", "c", a=8, b=8, c=8))
    assert where.tasks == {task: scene.host_of_task(task) for task in CHAIN}
    assert {task: [host] for task, host in where.standbys.items()} == {
        task: scene.hosts_of_standbys(task) for task in CHAIN
    }


def test_what_no_host_has_room_for_is_nowhere() -> None:
    where = preview(chain_of(*CHAIN), {"out/0": Constraint("z")}, members("a", "b", a=2, b=1))
    assert [where.tasks[task] for task in CHAIN] == ["a", "b", "a", ""]
    assert set(where.standbys.values()) == {""}


def test_copies_on_the_owners_own_host_are_counted_along_a_chain() -> None:
    hosts = dict(zip(CHAIN, ("a", "b", "a", "a"), strict=True))
    assert copies_at_home(chain_of(*CHAIN), hosts, 1) == {"read/0": 0, "double/0": 0, "count/0": 1, "out/0": 0}
    assert copies_at_home(chain_of(*CHAIN), hosts, 2) == {"read/0": 1, "double/0": 0, "count/0": 1, "out/0": 0}
    assert copies_at_home(chain_of(*CHAIN), hosts, 3)["read/0"] == 2


def test_a_chain_needs_a_host_for_the_owner_and_for_each_holder() -> None:
    topology = chain_of(*CHAIN)
    assert [hosts_needed(topology, depth) for depth in (1, 2, 3, 4, 10**6)] == [2, 3, 4, 4, 4]


def test_the_depth_of_a_running_job_is_that_of_where_its_tasks_are() -> None:
    scene = settled(*CHAIN, sharing_depth=1)
    spread = scene.view
    homes = {task["task"]: task["host"] for task in spread["tasks"]}
    met = not any(copies_at_home(scene.topology, homes, 1).values())
    assert met == (spread["sharing_now"] is None)
    alone = HostScene(*CHAIN, join=("a",), sharing_depth=1)
    assert alone.view["sharing_now"] is None, "no task is anywhere yet"
    alone.beats(6)
    assert alone.view["sharing_now"] == {"reached": 0, "at_home": list(CHAIN[:-1])}
    for changes in ({"sharing_depth": 100}, {"sharing_depth": 1, "guarantee": "none"}):
        other = HostScene(*CHAIN, join=("a",), **changes)
        other.beats(6)
        assert other.view["sharing_now"] is None


def reachable(topology: Topology, hosts: int, depth: int) -> bool:
    names = [task.name for task in topology.tasks]
    return any(
        not any(copies_at_home(topology, dict(zip(names, choice, strict=True)), depth).values())
        for choice in product("abcd"[:hosts], repeat=len(names))
    )


@given(st.integers(2, 5), st.integers(1, 4), st.integers(1, 4))
def test_no_placement_reaches_a_depth_with_fewer_hosts_than_are_said_to_be_needed(
    length: int, hosts: int, depth: int
) -> None:
    topology = chain_of(*(f"t{number}/0" for number in range(length)))
    assert reachable(topology, hosts, depth) == (hosts >= hosts_needed(topology, depth))
