"""The part of `causal plan` about hosts: the placement of tasks, and the sharing depth that results from it.

`causal run` prints warnings about too few hosts before it begins, if it knows its hosts, and once they have joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.network.roster import Member, Roster
from deploy.progress.progress_model import ROOM, named
from operators.engine.plan import Plan
from standby.blueprint import Blueprint, Constraint
from standby.supervision.job_view import JobView
from standby.supervision.preview import copies_at_home, hosts_needed, preview

LASTING_NS = 5_000_000_000
"""The time for which standbys may be missing before that is reported: they start after the tasks, one at a time."""


def placed(planned: Plan, config: JobConfig, members: Sequence[Member]) -> dict[str, Any]:
    """Return the placement of a job on these hosts, ready for JSON, with the sharing depth unless that is full."""
    constraints = {name: Constraint(*place) for name, place in planned.places().items()}
    topology = planned.topology
    where = preview(topology, constraints, members)
    standbys: Mapping[str, str] = where.standbys if config.own_standbys else {}
    result: dict[str, Any] = {
        "hosts": [member.name for member in members],
        "tasks": [
            {"task": task, "host": host or None, "standby": standbys.get(task) or None}
            for task, host in where.tasks.items()
        ],
    }
    if config.guarantee == "causal" and config.sharing_depth < topology.depth:
        at_home = copies_at_home(topology, where.tasks, config.sharing_depth)
        result["sharing_depth"] = {
            "wanted": config.sharing_depth,
            "reached": config.sharing_depth - max(at_home.values(), default=0),
            "hosts_needed": hosts_needed(topology, config.sharing_depth),
            "at_home": {task: count for task, count in at_home.items() if count},
        }
    return result


def warnings(planned: Plan, config: JobConfig) -> list[str]:
    """Return the warnings for a job whose hosts have no room for its standbys, or are too few for its sharing depth."""
    if not config.hosts:
        return []
    placement = placed(planned, config, Roster.load(Path(config.hosts)).hosts)
    lacking = [each["task"] for each in placement["tasks"] if config.own_standbys and not each["standby"]]
    result = [no_room(len(placement["hosts"]), lacking)] if lacking else []
    depth = placement.get("sharing_depth")
    return result + (list(depth_lines(placement)) if depth is not None and depth["reached"] < depth["wanted"] else [])


def no_room(hosts: int, tasks: Sequence[str]) -> str:
    """Return a message about tasks for whose standbys no host has room."""
    have = "host has" if hosts == 1 else "hosts have"
    return f"{hosts} {have} no room for the standby of {named(tasks)}; {ROOM}"


class RoomWatch:
    """Watches a running job for tasks whose standbys have no room on any host.

    Args:
        known: the tasks that were already reported before the job began.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._said = frozenset(known)
        self._lacking: frozenset[str] = frozenset()
        self._since_ns = 0

    def line(self, view: JobView) -> str | None:
        """Process a view; return the line to print about it, if any.  Each set of tasks is reported once."""
        finished = {task.task for task in view.tasks if task.state == "finished"}
        several = bool(view.hosts) and view.state == "running"
        lacking = frozenset(view.without_standby) - finished if several else frozenset()
        if lacking != self._lacking:
            self._lacking, self._since_ns = lacking, view.at_ns
        if not lacking or lacking <= self._said or view.at_ns - self._since_ns < LASTING_NS:
            return None
        self._said |= lacking
        joined = sum(1 for host in view.hosts if host.state == "joined")
        return no_room(joined, sorted(lacking))


def room_watch(job: Path, config: JobConfig) -> RoomWatch:
    """Return the `RoomWatch` for the job in this directory."""
    if not config.hosts or not config.own_standbys:
        return RoomWatch()
    blueprint = Blueprint.load(job)
    there = preview(blueprint.topology, blueprint.constraints, Roster.load(Path(config.hosts)).hosts)
    return RoomWatch(task for task, host in there.standbys.items() if not host)


def lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a placement plan for display."""
    width = max((len(each["task"]) for each in plan["tasks"]), default=0)
    yield f"if {', '.join(plan['hosts'])} have joined:"
    for each in plan["tasks"]:
        standby = f", standby on {each['standby']}" if each["standby"] else ""
        yield f"{each['task']:<{width}}  {'on ' + each['host'] if each['host'] else 'no host has room for it'}{standby}"
    yield from depth_lines(plan)


def depth_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the line about the sharing depth on these hosts; nothing for full depth, which never loses a
    determinant.
    """
    depth = plan.get("sharing_depth")
    if depth is None:
        return
    wanted, there = depth["wanted"], len(plan["hosts"])
    if depth["reached"] == wanted:
        yield f"sharing depth {wanted} is reached: no task shares a host with a holder of its determinants"
        return
    tasks = ", ".join(depth["at_home"])
    few = f"; it needs {depth['hosts_needed']} hosts, but there are {there}" if depth["hosts_needed"] > there else ""
    yield (
        f"sharing depth {wanted} counts as {depth['reached']}, because copies on the owner's host do not count "
        f"({tasks}){few}; with --sharing-depth full the death of a host loses no determinant"
    )
