"""The part of `causal plan` about hosts: where tasks would be, and whether the sharing depth survives a host there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.shell.roster import Member, Roster
from operators.engine.plan import Plan
from standby.blueprint import Constraint
from standby.supervision.preview import copies_at_home, hosts_needed, preview


def placed(planned: Plan, config: JobConfig, members: Sequence[Member]) -> dict[str, Any]:
    """The placement of a job on these hosts, JSON-ready; with the sharing depth where that is not full."""
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
    """The line for a job that begins with a sharing depth that its hosts do not reach; none for any other."""
    if not config.hosts:
        return []
    placement = placed(planned, config, Roster.load(Path(config.hosts)).hosts)
    depth = placement.get("sharing_depth")
    return list(depth_lines(placement)) if depth is not None and depth["reached"] < depth["wanted"] else []


def lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """The same for a user."""
    width = max((len(each["task"]) for each in plan["tasks"]), default=0)
    yield f"if {', '.join(plan['hosts'])} have joined:"
    for each in plan["tasks"]:
        standby = f", standby on {each['standby']}" if each["standby"] else ""
        yield f"{each['task']:<{width}}  {'on ' + each['host'] if each['host'] else 'no host has room for it'}{standby}"
    yield from depth_lines(plan)


def depth_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """The line about a sharing depth with these hosts; none for the full one, with which no determinant can be lost."""
    depth = plan.get("sharing_depth")
    if depth is None:
        return
    wanted, there = depth["wanted"], len(plan["hosts"])
    if depth["reached"] == wanted:
        yield f"sharing depth {wanted} is reached: no task shares a host with a holder of its determinants"
        return
    tasks = ", ".join(depth["at_home"])
    few = f"; it needs {depth['hosts_needed']} hosts, there are {there}" if depth["hosts_needed"] > there else ""
    yield (
        f"sharing depth {wanted} counts as {depth['reached']}, as copies on the owner's own host count zero ({tasks})"
        f"{few}; with --sharing-depth full the death of a host loses no determinant"
    )
