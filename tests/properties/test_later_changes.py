"""State that is converted early, and then its changes alone, is the state that a single conversion gives.

Each upgrade also continues to its end, and gives the rows of the model.
"""

from __future__ import annotations

from typing import Any

import pytest

from operators.runtime import later_changes
from operators.runtime.rescaling import Rescaling
from operators.state.fragments import divided, packed, unpacked
from tests.members import sample
from tests.properties.upgrades.driving import ALONE
from tests.properties.upgrades.examining import GRAPHS, examine_in_two
from tests.properties.upgrades.options import changes

ALWAYS_ALONE = ("count", "reduce", "process", "window", "join", "window_join", "join_table", "broadcast")
"""The cores whose changes are converted alone in a version that is not another one."""


@pytest.mark.parametrize("seed", sample(range(12), 2))
@pytest.mark.parametrize("name", GRAPHS)
def test_other_graphs_continue_from_their_changes(name: str, seed: int) -> None:
    examine_in_two(name, seed)


@pytest.mark.parametrize("seed", sample(range(4), 1))
@pytest.mark.parametrize("name", [change.name for change in changes()])
def test_other_options_continue_from_their_changes(name: str, seed: int) -> None:
    examine_in_two(name, seed)


@pytest.mark.parametrize("seed", sample(range(100, 112), 2))
@pytest.mark.parametrize("name", GRAPHS)
def test_the_same_version_continues_from_its_changes(name: str, seed: int) -> None:
    reason = examine_in_two(name, seed, changes=False)
    assert reason == ALONE or name.split()[-1] not in ALWAYS_ALONE


@pytest.mark.parametrize("core", ALWAYS_ALONE)
def test_the_changes_of_other_tasks_are_converted_alone(core: str) -> None:
    assert ALONE in {examine_in_two(f"tasks {core}", seed) for seed in range(20)}


# Whether it is able to fail.


def detected(name: str, seeds: int) -> bool:
    """Return whether one of the first examples fails."""
    for seed in range(seeds):
        try:
            examine_in_two(name, seed)
        except AssertionError:
            return True
    return False


def test_removed_keys_that_return_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_removed(fragment: bytes, groups_of: Any) -> dict[int, bytes]:
        keys, values, _ = unpacked(fragment)
        return divided(packed((keys, values, [])), groups_of)

    monkeypatch.setattr(later_changes, "divided", without_removed)
    assert detected("tasks join_table", 6)


def test_keys_of_other_tasks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later_changes, "divided", lambda fragment, groups_of: {0: fragment})
    assert detected("tasks count", 12)


def test_options_that_change_all_state_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later_changes, "_options", lambda header: {})
    assert detected("Stream.window(trigger) #19", 6)


def test_timers_that_change_places_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rescaling, "_renumber", lambda self, chain: chain.renumber())
    assert detected("tasks timers", 6)
