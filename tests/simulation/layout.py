"""The hosts that a scenario has, and what may happen to them.

They are drawn apart from all else, so that the seeds of jobs on one machine mean what they meant.  A job of several
hosts keeps everything else of its seed, but for the guarantee `epoch`, which such jobs refuse.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SEVERAL_MAX = 4
NAMES = ("a", "b", "c", "d")

HOST_FAULTS = {
    "host_dies": 5,
    "host_cut": 6,
    "between_hosts": 4,
    "one_way": 4,
    "flap": 3,
    "drain": 3,
    "revoke": 2,
    "impostor": 2,
    "depot_away": 4,
    "depot_loses": 3,
}
"""The faults of hosts and of the storage that they share, with how often each is drawn."""

LEADER_FAULTS = {"leader_dies": 5, "leader_cut": 6, "leader_sleeps": 5, "leader_resigns": 2}
"""The same of supervisors that have successors."""

LEADERS_LOST, LEADERS_LOST_SHARE = "leaders_lost", 0.2
"""All supervisors are lost, and the job is resumed; drawn apart from the others."""

LEADER_DEAF, LEADER_DEAF_SHARE = "leader_deaf", 0.25
"""The leader loses every host forever, and reaches the store; drawn apart from the others."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The hosts of a job.

    Attributes:
        hosts: their names.
        slots: the processes that each has room for; zones: of each.
        pins: (task, host) of the tasks that may be on one host alone.
        timeout_ms: the silence after which a host counts as dead.
        store_ms: the most that a request to the shared store takes.
        keys: each host has a key, so a task is heard from the host alone on which it was placed.
        successors: the candidates that wait next to the supervisor.
    """

    hosts: tuple[str, ...]
    slots: tuple[int, ...]
    zones: tuple[str, ...]
    pins: tuple[tuple[str, str], ...]
    timeout_ms: int
    store_ms: int
    keys: bool
    successors: int = 0


def laid_out(rng: random.Random, layers: tuple[int, ...], copies: int, hashing: bool) -> Layout:
    """Draw hosts for a job with this many copies of these layers of tasks; each alone has room for all tasks."""
    hosts = NAMES[: rng.choices(range(1, SEVERAL_MAX + 1), (1, 4, 4, 3))[0]]
    tasks = [f"l{depth}/{place}" for depth, width in enumerate(layers) for place in range(width)] if hashing else []
    pinned = [task for task in tasks if rng.random() < 0.3] if rng.random() < 0.25 else []
    return Layout(
        hosts=hosts,
        slots=tuple(rng.choice((copies * sum(layers) + 2, 50)) for _ in hosts),
        zones=tuple(rng.choice(("", "x", "y")) for _ in hosts),
        pins=tuple((task, rng.choice(hosts)) for task in pinned),
        timeout_ms=rng.choice((250, 400, 800)),
        store_ms=rng.choice((2, 20, 200)),
        keys=rng.random() < 0.8,
    )


def layout_from(fields: Mapping[str, Any]) -> Layout:
    """Return the layout that `dataclasses.asdict` gave, also if it has been JSON since."""
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    plain["pins"] = tuple((task, host) for task, host in fields["pins"])
    return Layout(**plain)


ONE_MACHINE = Layout(("",), (1,), ("",), (), 3000, 1, False)
"""Stands for the hosts of a job on one machine, which needs no join."""
