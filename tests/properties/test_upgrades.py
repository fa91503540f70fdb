"""A sample of the upgrades that `python -m tests.properties.upgrades` performs without end."""

from __future__ import annotations

import subprocess
import sys
from random import Random
from typing import Any

import pytest

from operators.engine.chain import FusedChain
from operators.kinds.registry import KINDS
from operators.runtime import rescaling
from operators.runtime.rescaling import Rescaling
from operators.runtime.sent_rows import SentRows
from operators.stage.stages import Stage
from operators.stage.watermark_merge import Merge
from tests.members import sample
from tests.properties.upgrades import graphs
from tests.properties.upgrades.driving import Event, Scene
from tests.properties.upgrades.effects import EFFECTS, GRAPH, NOTES
from tests.properties.upgrades.examining import GRAPHS, NAMES, examine
from tests.properties.upgrades.judging import PASSED, REFUSED, Mismatch, judged
from tests.properties.upgrades.model import MODELS
from tests.properties.upgrades.options import CASES, NOT_HERE, Change, changes

ALLOWED = {
    "applied": {PASSED},
    "from now on": {PASSED},
    "refused": {REFUSED},
    "depends": {PASSED, REFUSED},
}
"""Effect → what the matrix may find."""


@pytest.mark.parametrize("seed", sample(range(12), 3))
@pytest.mark.parametrize("name", GRAPHS)
def test_other_graphs_continue_as_documented_or_are_refused(name: str, seed: int) -> None:
    examine(name, seed)


@pytest.mark.parametrize("seed", sample(range(4), 1))
@pytest.mark.parametrize("change", changes(), ids=lambda change: change.name)
def test_every_option_has_the_effect_that_is_documented(change: Change, seed: int) -> None:
    effect = EFFECTS[f"{change.operator}({change.option})"]
    assert examine(change.name, seed) in ALLOWED[effect], f"{change.name} is {effect} in effects.py and the guide"


def test_every_option_has_an_effect() -> None:
    """Each option of the builder has a witness (`test_options.py`), each witness is changed, each change documented."""
    assert set(EFFECTS) == {f"{change.operator}({change.option})" for change in changes()}
    witnessed = {(case.of, option) for case in CASES for option in case.options if option not in case.without}
    assert set(NOT_HERE) <= witnessed
    assert set(NOTES) <= set(EFFECTS) and set(GRAPH) == set(graphs.CHANGES) - {"option"}


def test_every_operator_has_a_model() -> None:
    assert set(MODELS) == set(KINDS), "what does the documentation say that it does? say it in model*.py"


def test_the_command_counts_and_says_how_to_repeat() -> None:
    run = [sys.executable, "-m", "tests.properties.upgrades", "--only", "graph count", "--examples", "2"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    passed, refused, failed = (int(part.split()[0]) for part in done.stdout.splitlines()[-1].split(", "))
    assert (passed + refused, failed) == (2, 0)
    unknown = subprocess.run([*run[:4], "nothing"], capture_output=True, text=True, check=False)
    assert unknown.returncode == 2 and "graph count" in unknown.stderr


# Whether it is able to fail: each of these takes out what an upgrade needs.


def detected(name: str, seeds: int) -> bool:
    """Return whether one of the first examples fails."""
    for seed in range(seeds):
        try:
            examine(name, seed)
        except Exception:
            return True
    return False


def test_old_values_that_new_code_is_asked_for_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SentRows, "settle", lambda self, chain: None)
    assert all(detected(name, 12) for name in ("Table.filter(fn) #31", "Table.group_by(fn) #33", "graph table"))


def test_state_that_is_taken_for_that_of_another_option_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Stage.__setattr__

    def without_meaning(stage: Stage, name: str, value: Any) -> None:
        real(stage, name, "" if name == "meaning" else value)

    monkeypatch.setattr(Stage, "__setattr__", without_meaning)
    assert all(detected(name, 6) for name in ("KeyedStream.sum(column) #13", "Tumbling(size_s) #42"))


def test_an_input_that_had_ended_and_is_waited_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rescaling, "_has_ended", lambda self, source: False)
    assert detected("graph join_table", 40)


def test_state_of_other_tasks_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Rescaling._contributors
    monkeypatch.setattr(Rescaling, "_contributors", lambda self, task: real(self, task)[:1])
    assert detected("KeyedStream.count(parallelism) back #12", 6)


def test_operators_that_never_hear_of_an_upgrade_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FusedChain, "changed", lambda self, *facts: None)
    assert detected("every_s(seconds) #49", 6)


def test_a_watermark_that_waits_for_the_next_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert examine("tasks timers", 16) == PASSED
    monkeypatch.setattr(Merge, "behind", lambda self: False)
    with pytest.raises(Mismatch, match="after, out"):
        examine("tasks timers", 16)


def test_a_watermark_that_is_forgotten_by_another_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescaling, "_inherited", lambda stage, name, share: share.header["stages"].get(stage.name, {}))
    assert detected("order reduce", 12)


def test_a_wrong_row_is_found() -> None:
    before = graphs.Version(core="count", options={"delivery": "arrival"}, partitions=1)
    events = [Event(("a", 0), {"k": "x", "at": at, "v": at}) for at in range(4)]
    scene = Scene(lambda: graphs.built(before), lambda: graphs.built(before), [*events, Event(("a", 0), ends=True)], 2)
    assert judged(scene, Random(1)) == PASSED
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MODELS["count"], "adopt", lambda self, before: None)
        with pytest.raises(Mismatch, match="after, out"):
            judged(scene, Random(1))


def test_all_kinds_of_upgrades_are_drawn() -> None:
    assert len(set(NAMES)) > 2 * len(EFFECTS)
    assert {name for name in NAMES if name in GRAPHS} == set(GRAPHS)
