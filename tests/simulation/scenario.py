"""Everything that a seed decides, as plain data that can be printed, compared and made smaller."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from causal.topology import FULL_DEPTH
from tests.simulation.clockwork import MS

KINDS = ("clock", "random", "call", "timer", "window", "user")
"""Determinants that operators ask for; order and barrier are always there."""

LATER = ("ask", "marks", "idle")
"""What hashing chains may do besides, drawn apart so that the seeds from before mean what they meant: requests that are
answered later, watermarks, and watermarks that say that nobody should wait."""

DEADLY = ("kill", "kill_mid", "kill_standby", "several", "host", "everything", "supervisor", "agent")
TROUBLE = (
    "cut",
    "partition",
    "pause",
    "disk_slow",
    "disk_full",
    "store_away",
    "clock_jump",
    "false_exit",
    "garble",
    "mute",
    "rot_spill",
)
FAULTS = DEADLY + TROUBLE
ALL_BACK = ("kill", "everything")
"""Of these each scenario with the guarantee `epoch` has one at least: without a failure nobody goes back."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        at_ns: virtual time.
        who: chooses the victim, modulo how many there are.
        extent: kind by kind: how many, how long in ms, after how many effects, by how much.
    """

    kind: str
    at_ns: int
    who: int
    extent: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """One whole run, but for the order of what happens at the same time, which the seed decides as well."""

    seed: int
    layers: tuple[int, ...]
    shortcut: bool
    fan_out: bool
    production: bool
    partitions: int
    records: int
    batch_every_ms: int
    depth: int
    guarantee: str
    kinds: tuple[str, ...]
    checkpoint_ms: int
    credit_bytes: int
    batch_elements: int
    inflight_memory_bytes: int
    standbys: str
    latency_us: int
    tcp: bool
    faults: tuple[Fault, ...]
    ordered: bool = False
    """All tasks that read from others do so in an order that follows from content."""
    flush: bool = False
    """Determinants go to stable storage in the background."""


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    rng = random.Random(seed)
    chance = rng.random
    layers = rng.choice(((1, 1), (2, 1), (1, 2, 1), (2, 2, 1), (1, 1, 1, 1), (2, 1, 2), (1, 2, 2, 1), (3, 1, 1)))
    guarantee = rng.choices(("causal", "at-least-once", "none"), (18, 1, 1))[0]
    staged = random.Random(seed ^ 0xE90C)  # apart, as `LATER` is
    if staged.random() < 0.12:
        guarantee = "epoch"
    depth = rng.choices((FULL_DEPTH, 1, 2, 3), (10, 4, 2, 1))[0] if guarantee == "causal" else FULL_DEPTH
    production = chance() < 0.2
    faults = tuple(sorted((_fault(rng) for _ in range(rng.choice((0, 1, 2, 3, 4, 6)))), key=lambda f: f.at_ns))
    if guarantee not in ("causal", "epoch"):
        # Only what these guarantees say something about; without any, nobody compares digests.
        meant = ("kill", "supervisor", "agent", "cut", "disk_slow")
        meant = meant if guarantee == "none" else (*meant, "garble")
        faults = tuple(f for f in faults if f.kind in meant)
    if guarantee == "epoch":
        drawn = Fault(staged.choice(ALL_BACK), staged.randint(300, 1500) * MS, staged.randrange(1 << 16), 1)
        faults = tuple(sorted((*faults, drawn), key=lambda f: f.at_ns))
    apart = random.Random(seed ^ 0x0D0E)
    later = tuple(kind for kind in LATER if apart.random() < 0.3)
    ordered = apart.random() < 0.25
    return Scenario(
        seed=seed,
        layers=layers,
        shortcut=not production and len(layers) > 2 and chance() < 0.4,
        fan_out=chance() < 0.3,
        production=production,
        partitions=rng.choice((1, 1, 2)),
        records=rng.choice((20, 40, 80)),
        batch_every_ms=rng.choice((2, 10, 40)),
        depth=depth,
        guarantee=guarantee,
        kinds=tuple(kind for kind in KINDS if chance() < 0.6) + later,
        checkpoint_ms=rng.choice((60, 150, 400, 5000)),
        credit_bytes=rng.choice((1 << 16, 1 << 20)),
        batch_elements=rng.choice((1, 4, 16)),
        inflight_memory_bytes=rng.choice((1 << 20, 1 << 20, 500)),
        standbys=rng.choices(("per-task", "1", "0"), (6, 2, 1))[0],
        latency_us=rng.choice((50, 500, 5000)),
        tcp=chance() < 0.2,
        faults=faults,
        ordered=ordered and not production,
        flush=guarantee == "causal" and random.Random(seed ^ 0xF1005).random() < 0.4,
    )


def from_json(text: str) -> Scenario:
    """What `json.dumps(dataclasses.asdict(scenario))` wrote."""
    told = json.loads(text)
    for name in ("layers", "kinds"):
        told[name] = tuple(told[name])
    told["faults"] = tuple(Fault(**fault) for fault in told["faults"])
    return Scenario(**told)


def _fault(rng: random.Random) -> Fault:
    kind = rng.choices(FAULTS, (8, 8, 3, 6, 2, 2, 4, 3, 4, 3, 4, 2, 2, 2, 2, 3, 3, 4, 2))[0]
    return Fault(kind, rng.randint(300, 1500) * MS + rng.randint(0, MS), rng.randrange(1 << 16), rng.randint(1, 400))
