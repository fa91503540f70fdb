"""A preview of where a job's processes are placed, and how far determinants are then copied to other hosts.

A copy on the owner's own host does not count towards the sharing depth, because it is lost with the owner (design
0024).  The preview is a pure function: it uses the same placement rules as the supervisor and assumes that all hosts
have joined.  For a running job, the actual depth is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from causal.config import JobConfig
from causal.ids import TaskIndex
from causal.network.roster import Member
from causal.topology import Topology
from standby.blueprint import Constraint
from standby.supervision.assignments import Assignments
from standby.supervision.hosts import SLOTS_MAX, Hosts
from standby.supervision.job_view import SharingView
from standby.supervision.placement import Placement


@dataclass(frozen=True, slots=True)
class Preview:
    """The host of each task and of its standby; empty if no host has room for it."""

    tasks: Mapping[str, str]
    standbys: Mapping[str, str]


def preview(topology: Topology, constraints: Mapping[str, Constraint], members: Iterable[Member]) -> Preview:
    """Return the placement of a job that begins on these hosts; a host without a slot count has room for everything."""
    assignments, hosts = Assignments(topology), Hosts(True, 0)
    for member in members:
        slots = SLOTS_MAX if member.slots is None else member.slots
        facts = {"incarnation": 1, "session": "-", "slots": slots, "zone": member.zone or "", "machine": ""}
        hosts.apply({"kind": "host_joined", "host": member.name, **facts, "labels": dict(member.labels or {})})
    placement = Placement(hosts, assignments, constraints)
    rounds: list[dict[str, str]] = []
    for serves in (True, False):
        placed = dict.fromkeys(assignments.tasks, "")
        for task in placed:
            host = placement.host_for(task)
            if host is None:
                continue
            placed[task], number = host, assignments.started_max + 1
            slot = f"w{number}"
            assignments.apply({"kind": "process", "number": number, "slot": slot, "purpose": task, "host": host})
            if serves:
                assignments.apply({"kind": "promoted", "slot": slot, "task": task, "incarnation": 1})
        rounds.append(placed)
    return Preview(*rounds)


class SharingNow:
    """Computes the effective sharing depth of a running job from the current placement of its tasks.

    Nothing enforces the depth: placement does not consider it, and the loss of a host may reduce it.
    """

    def __init__(self, topology: Topology, config: JobConfig) -> None:
        self._topology = topology
        self._wanted = config.sharing_depth
        self._counts = bool(config.listen) and config.guarantee == "causal" and self._wanted < topology.depth
        self._hosts: Mapping[str, str] = {}
        self._shown: SharingView | None = None

    def shown(self, hosts: Mapping[str, str]) -> SharingView | None:
        """Return the depth for tasks on these hosts.

        Returns: None if the depth is as configured, or if no death in this job loses determinants.
        """
        if self._counts and hosts != self._hosts:
            at_home = {
                task: count for task, count in copies_at_home(self._topology, hosts, self._wanted).items() if count
            }
            reached = self._wanted - max(at_home.values(), default=0)
            self._shown = SharingView(reached, list(at_home)) if at_home else None
            self._hosts = dict(hosts)
        return self._shown


def hosts_needed(topology: Topology, depth: int) -> int:
    """Return how many hosts are needed so that no copy of a determinant is on its owner's host.

    All tasks on one path that share determinants must then be on different hosts.
    """
    longest: dict[int, int] = {}
    for task in reversed(topology.tasks):
        longest[task.index] = max((1 + longest[each] for each in topology.downstream(task.index)), default=0)
    return 1 + min(depth, max(longest.values(), default=0))


def copies_at_home(topology: Topology, hosts: Mapping[str, str], depth: int) -> dict[str, int]:
    """Return, for each task, how many copies of its determinants are on its own host, on the path with the most.

    Args:
        depth: the number of consecutive downstream tasks that hold a task's determinants.
    """
    result: dict[str, int] = {}
    for owner in topology.tasks:
        home = hosts[owner.name]
        most: dict[tuple[TaskIndex, int], int] = {}

        def at_home(task: TaskIndex, left: int, home: str = home, most: dict[tuple[TaskIndex, int], int] = most) -> int:
            if left and (task, left) not in most:
                most[task, left] = max(
                    (
                        (hosts[topology.tasks[each].name] == home) + at_home(each, left - 1)
                        for each in topology.downstream(task)
                    ),
                    default=0,
                )
            return most[task, left] if left else 0

        result[owner.name] = at_home(owner.index, depth) if home else 0
    return result
