"""Everything that a seed decides, as plain data that can be printed, compared and made smaller."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import Any

from causal.topology import FULL_DEPTH
from tests.simulation.change_faults import Change, changes_from, drawn_changes
from tests.simulation.clockwork import MS
from tests.simulation.layout import (
    HOST_FAULTS,
    LEADER_DEAF,
    LEADER_DEAF_SHARE,
    LEADER_FAULTS,
    LEADERS_LOST,
    LEADERS_LOST_SHARE,
    Layout,
    laid_out,
    layout_from,
)

KINDS = ("clock", "random", "call", "timer", "window", "user")
"""Determinants that operators ask for; order and barrier are always there."""

LATER = ("ask", "marks", "idle")
"""Further features of hashing chains: requests that are answered later, watermarks, and idle marks."""

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
RARE = {"forge": 0.1, "newer_run": 0.05, "edit": 0.15}
"""The chance of each, drawn apart from the other faults: a forged HELLO, a newer run that writes to the sinks, and an
edit of the pipeline's files."""
OTHER_CODE, OTHER_CODE_SHARE = "other_code", 0.08
"""Everything is killed, the files of the pipeline are edited, and the job is resumed; drawn apart from all others."""
FAULTS = (*DEADLY, *TROUBLE, *RARE, OTHER_CODE)
ALL_BACK = ("kill", "everything")
"""Each scenario with the guarantee `epoch` has one of these at least: without a failure no task is rolled back."""
TOGETHER = 0.3
"""The share of faults that come while the one before still lasts: recoveries fail where faults overlap."""


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
    channel_window_bytes: int
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
    slow_ms: int = 0
    """The time that some records take in each task that they pass: longer than the silence that counts as death."""
    load_ms: int = 0
    """The most that the loading of a state takes."""
    kept_bytes: int = 0
    """The bounds on what a task keeps until the next checkpoint; 0 for the defaults."""
    mixed_keys: bool = False
    """Equal keys come in several types (1, 1.0, True), where operators have keys."""
    hot: bool = False
    """Standbys perform what their tasks perform."""
    separate: bool = False
    """The graph is there twice, and no channel connects the two: what one loses does not concern the other."""
    layout: Layout | None = None
    """The hosts of the job; None for one machine."""
    processes: str = ""
    """The grouping of a pipeline into processes; empty for a task per subtask."""
    input_s: int = 1
    """The time in which the input arrives, at least one record at a time."""
    changes: tuple[Change, ...] = ()
    """Changes of the running job to its next version."""


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    rng = random.Random(seed)
    chance = rng.random
    layers = rng.choice(((1, 1), (2, 1), (1, 2, 1), (2, 2, 1), (1, 1, 1, 1), (2, 1, 2), (1, 2, 2, 1), (3, 1, 1)))
    guarantee = rng.choices(("causal", "epoch", "at-least-once", "none"), (30, 8, 1, 1))[0]
    depth = rng.choices((FULL_DEPTH, 1, 2, 3), (7, 5, 4, 1))[0] if guarantee == "causal" else FULL_DEPTH
    production = chance() < 0.2
    faults = _faults(rng, rng.choice((0, 1, 2, 3, 4, 6)))
    if guarantee in ("at-least-once", "none"):
        # Only faults that these guarantees cover; without a guarantee no digest is compared.
        meant: tuple[str, ...] = ("kill", "supervisor", "agent", "cut", "disk_slow")
        meant = meant if guarantee == "none" else (*meant, "garble")
        faults = tuple(f for f in faults if f.kind in meant)
    if guarantee == "epoch":
        back = Fault(rng.choice(ALL_BACK), rng.randint(300, 1500) * MS, rng.randrange(1 << 16), 1)
        faults = tuple(sorted((*faults, back), key=lambda f: f.at_ns))
    apart = random.Random(seed ^ 0x51_0E)
    if guarantee in ("causal", "epoch"):
        rare = [_timed(apart, kind) for kind, share in RARE.items() if apart.random() < share]
        late = random.Random(seed ^ 0xC0_DE)
        rare += [_timed(late, OTHER_CODE)] if late.random() < OTHER_CODE_SHARE else []
        faults = tuple(sorted((*faults, *rare), key=lambda f: f.at_ns))
    ordered = chance() < 0.4
    halved = random.Random(seed ^ 0x2_6A_2F)
    return Scenario(
        seed=seed,
        layers=layers,
        shortcut=not production and len(layers) > 2 and chance() < 0.4,
        fan_out=chance() < 0.3,
        production=production,
        partitions=rng.choice((1, 1, 2)),
        records=rng.choice((20, 20, 40, 80)),
        batch_every_ms=rng.choice((2, 10, 40)),
        depth=depth,
        guarantee=guarantee,
        kinds=tuple(kind for kind in KINDS if chance() < 0.6) + tuple(kind for kind in LATER if chance() < 0.3),
        checkpoint_ms=rng.choice((60, 150, 400, 5000)),
        channel_window_bytes=rng.choice((1 << 16, 1 << 20)),
        batch_elements=rng.choice((1, 4, 16)),
        inflight_memory_bytes=rng.choice((1 << 20, 1 << 20, 500)),
        standbys=rng.choices(("per-task", "1", "0"), (6, 2, 1))[0],
        latency_us=rng.choice((50, 500, 5000)),
        tcp=chance() < 0.2,
        faults=faults,
        ordered=ordered and not production,
        flush=guarantee == "causal" and chance() < 0.5,
        slow_ms=apart.randint(350, 900) if apart.random() < 0.12 else 0,
        load_ms=apart.randint(50, 900) if apart.random() < 0.25 else 0,
        mixed_keys=production and apart.random() < 0.5,
        kept_bytes=apart.choice((400, 2000, 8000)) if apart.random() < 0.25 else 0,
        separate=not production and depth < FULL_DEPTH and sum(layers) < 5 and halved.random() < 0.4,
    )


def plain(seed: int, layers: tuple[int, ...], **changes: Any) -> Scenario:
    """Return a scenario with these fields in which nothing fails: hashing chains that use no service."""
    fields: dict[str, Any] = {
        "shortcut": False, "fan_out": False, "production": False, "partitions": 1, "records": 80, "batch_every_ms": 5,
        "depth": FULL_DEPTH, "guarantee": "causal", "kinds": (), "checkpoint_ms": 5000, "channel_window_bytes": 1 << 20,
        "batch_elements": 4, "inflight_memory_bytes": 1 << 20, "standbys": "per-task", "latency_us": 500, "tcp": False,
        "faults": (),
    }  # fmt: skip
    return Scenario(seed, layers, **{**fields, **changes})


def draw_hot(seed: int) -> Scenario:
    """Return the scenario of a seed with hot standbys, on one machine or on several hosts; the guarantee is always
    causal.
    """
    alike = draw_hosts(seed) if random.Random(seed ^ 0x40_7).random() < 0.3 else draw(seed)
    faults = tuple(fault for fault in alike.faults if alike.guarantee == "causal" or fault.kind not in ALL_BACK)
    return replace(alike, hot=True, guarantee="causal", faults=faults)


def draw_cells(seed: int) -> Scenario:
    """Return the scenario of a seed for a pipeline in cells, on one machine, on several hosts or with hot standbys."""
    rng = random.Random(seed ^ 0xCE_11)
    alike = rng.choices((draw, draw_hosts, draw_hot), (5, 2, 2))[0](seed)
    processes = rng.choice(("one", "stages", "stages"))
    layers = tuple(1 for _ in alike.layers) if processes == "one" or rng.random() < 0.5 else alike.layers
    layout = laid_out(random.Random(seed), layers, 1, False) if alike.layout is not None else None
    if layout is not None and alike.layout is not None:
        layout = replace(layout, successors=alike.layout.successors)
    return replace(
        alike, production=True, processes=processes, layers=layers, partitions=rng.choice((1, 2, 3)), layout=layout,
        ordered=False, shortcut=False, separate=False, mixed_keys=rng.random() < 0.5,
    )  # fmt: skip


def draw_hosts(seed: int) -> Scenario:
    """Return the scenario of a seed on hosts that join over a network, with what may happen to those as well."""
    rng, alike = random.Random(seed ^ 0x40_57), draw(seed)
    layout = laid_out(rng, alike.layers, 1 + alike.separate, not alike.production)
    guarantee = "causal" if alike.guarantee == "epoch" else alike.guarantee
    faults = tuple(f for f in alike.faults if guarantee == alike.guarantee or f.kind not in ALL_BACK)
    kinds = tuple(HOST_FAULTS) if guarantee == "causal" else ("host_dies", "host_cut", "drain", "depot_away")
    drawn = rng.choices(kinds, [HOST_FAULTS[kind] for kind in kinds], k=rng.choice((1, 1, 2, 3, 4)))
    own = sorted((_timed(rng, kind) for kind in drawn), key=lambda f: f.at_ns)
    for place in range(1, len(own)):
        if rng.random() < TOGETHER:
            own[place] = replace(own[place], at_ns=own[place - 1].at_ns + rng.randint(0, own[place - 1].extent * MS))
    succeeding = random.Random(seed ^ 0x7E_12)
    if succeeding.random() < 0.5:
        layout = replace(layout, successors=succeeding.choice((1, 1, 2)))
        kinds, weights = tuple(LEADER_FAULTS), tuple(LEADER_FAULTS.values())
        own += [_timed(succeeding, kind) for kind in succeeding.choices(kinds, weights, k=succeeding.choice((1, 2, 3)))]
        own += [_timed(succeeding, LEADERS_LOST)] if succeeding.random() < LEADERS_LOST_SHARE else []
        deaf = random.Random(seed ^ 0xDE_AF)
        own += [_timed(deaf, LEADER_DEAF)] if deaf.random() < LEADER_DEAF_SHARE else []
    every = tuple(sorted((*faults, *own), key=lambda f: f.at_ns))
    return replace(alike, layout=layout, guarantee=guarantee, faults=every)


def draw_changes(seed: int) -> Scenario:
    """Return the scenario of a seed with changes of the running job, on one machine; the guarantee is always causal."""
    rng = random.Random(seed ^ 0xC4_A6)
    alike = rng.choices((draw, draw_hot, draw_cells), (6, 1, 2))[0](seed)
    meant = {*DEADLY, *TROUBLE, "forge"}
    faults = tuple(f for f in alike.faults if f.kind in meant and rng.random() < 0.6)
    records, batch_every_ms, input_s = rng.choice(((39, 50, 2), (60, 40, 3), (80, 90, 8)))
    return replace(
        alike, guarantee="causal", layout=None, faults=faults, records=records, batch_every_ms=batch_every_ms,
        input_s=input_s,
        checkpoint_ms=rng.choice((60, 150, 400)), changes=drawn_changes(rng), flush=rng.random() < 0.5,
    )  # fmt: skip


def from_json(text: str) -> Scenario:
    """Return the scenario that `json.dumps(dataclasses.asdict(scenario))` wrote."""
    fields = json.loads(text)
    for name in ("layers", "kinds"):
        fields[name] = tuple(fields[name])
    fields["faults"] = tuple(Fault(**fault) for fault in fields["faults"])
    fields["changes"] = changes_from(fields.get("changes", ()))
    fields["layout"] = layout_from(fields["layout"]) if fields.get("layout") else None
    return Scenario(**fields)


def _faults(rng: random.Random, count: int) -> tuple[Fault, ...]:
    """Draw faults, in order of time; some begin while the one before still lasts."""
    faults = sorted((_fault(rng) for _ in range(count)), key=lambda f: f.at_ns)
    for place in range(1, count):
        if rng.random() < TOGETHER:
            before = faults[place - 1]
            faults[place] = replace(faults[place], at_ns=before.at_ns + rng.randint(0, before.extent * MS))
    return tuple(sorted(faults, key=lambda f: f.at_ns))


def _fault(rng: random.Random) -> Fault:
    kind = rng.choices(DEADLY + TROUBLE, (8, 8, 3, 6, 2, 2, 4, 3, 4, 3, 4, 2, 2, 5, 2, 3, 3, 4, 2))[0]
    return _timed(rng, kind)


def _timed(rng: random.Random, kind: str) -> Fault:
    return Fault(kind, rng.randint(300, 1500) * MS + rng.randint(0, MS), rng.randrange(1 << 16), rng.randint(1, 400))
