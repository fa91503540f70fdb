"""A failing scenario made smaller: fewer faults, a smaller graph, fewer records, as long as the same promise breaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.simulation.change_faults import Change
from tests.simulation.layout import HOST_FAULTS, LEADER_FAULTS, LEADERS_LOST, Layout
from tests.simulation.scenario import Scenario
from tests.simulation.trial import Outcome, run

TRIES_MAX = 300
_SMALLER_LAYERS = ((1, 1), (2, 1), (1, 1, 1), (1, 2, 1), (2, 1, 1), (1, 1, 1, 1), (2, 2, 1))


def shrink(outcome: Outcome, sabotage: str = "") -> tuple[Outcome, int]:
    """Return the smallest scenario found that breaks the same promise, and how many runs that took.

    Returns the outcome itself where nothing smaller fails alike.
    """
    best, tries = outcome, 0
    progress = True
    while progress and tries < TRIES_MAX:
        progress = False
        for smaller in _smaller(best.scenario):
            tries += 1
            tried = run(smaller, sabotage)
            if tried.problem and tried.sort == outcome.sort:
                best, progress = tried, True
                break
            if tries == TRIES_MAX:
                break
    return best, tries


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield candidates, the greatest steps first."""
    faults = scenario.faults
    for size in (len(faults), len(faults) // 2, 1):
        for start in range(0, len(faults), size) if size else ():
            yield replace(scenario, faults=faults[:start] + faults[start + size :])
    yield from (replace(scenario, changes=smaller) for smaller in _smaller_changes(scenario.changes))
    for layers in _SMALLER_LAYERS:
        if (sum(layers), len(layers)) < (sum(scenario.layers), len(scenario.layers)):
            yield replace(scenario, layers=layers)
    for change in (
        {"separate": False},
        {"shortcut": False},
        {"fan_out": False},
        {"production": False},
        {"partitions": 1},
        {"tcp": False},
        {"standbys": "per-task"},
        {"batch_elements": 1},
        {"inflight_memory_bytes": 1 << 20},
    ):
        if any(getattr(scenario, name) != value for name, value in change.items()):
            yield replace(scenario, **change)
    layout = scenario.layout
    if layout is not None:
        plain = tuple(fault for fault in faults if fault.kind not in {*LEADER_FAULTS, LEADERS_LOST})
        if layout.successors:
            yield replace(scenario, layout=replace(layout, successors=layout.successors - 1), faults=faults)
            yield replace(scenario, layout=replace(layout, successors=0), faults=plain)
        yield replace(scenario, layout=None, faults=tuple(fault for fault in plain if fault.kind not in HOST_FAULTS))
        yield from (replace(scenario, layout=replace(layout, **less)) for less in _fewer_hosts(layout))
    for records in (scenario.records // 4, scenario.records // 2, scenario.records - 5):
        if 0 < records < scenario.records:
            yield replace(scenario, records=records)
    for kind in scenario.kinds:
        yield replace(scenario, kinds=tuple(each for each in scenario.kinds if each != kind))


def _smaller_changes(changes: tuple[Change, ...]) -> Iterator[tuple[Change, ...]]:
    for place, change in enumerate(changes):
        before, after = changes[:place], changes[place + 1 :]
        yield (*before, *after)
        if change.trouble:
            yield (*before, replace(change, trouble=""), *after)
        if change.pause_ms > 1:
            yield (*before, replace(change, pause_ms=1), *after)


def _fewer_hosts(layout: Layout) -> Iterator[dict[str, Any]]:
    if layout.pins:
        yield {"pins": ()}
    elif len(layout.hosts) > 1:
        yield {"hosts": layout.hosts[:-1], "slots": layout.slots[:-1], "zones": layout.zones[:-1]}
    if any(layout.zones):
        yield {"zones": ("",) * len(layout.zones)}
