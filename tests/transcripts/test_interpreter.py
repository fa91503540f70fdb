"""The harness itself: text survives an update, and what is not so is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from causal.channels.exchange import Exchange
from causal.channels.receiver import Receiver
from causal.channels.sender import Sender
from causal.logs.dissemination import Holdings
from causal.topology import Topology
from standby.supervision.effects import Journal, Outbox
from tests.transcripts.files import chosen, difference, update
from tests.transcripts.interpreter import Unmet, replayed, topology_of
from tests.transcripts.script import Line, aligned, read, written

SCENARIO = """00  A title

> job A -> B
> quietly run
> records A: a
> run
> expect rows a
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "00-test.txt"
    path.write_text(SCENARIO)
    return path


@pytest.mark.parametrize("path", chosen(), ids=lambda path: path.stem)
def test_reading_and_writing_are_inverse(path: Path) -> None:
    assert written(read(path)) == path.read_text()


def test_an_update_adds_the_conversation_and_nothing_else(scenario: Path) -> None:
    assert update(scenario)
    assert not update(scenario), "the same commands cause the same conversation"
    assert difference(scenario) == ""
    kept = [line for line in scenario.read_text().splitlines() if not line.startswith("  ")]
    assert kept == SCENARIO.splitlines()


def test_a_changed_line_shows_as_a_diff(scenario: Path) -> None:
    update(scenario)
    scenario.write_text(scenario.read_text().replace("rows 0..1  a", "rows 0..1  z"))
    changed = difference(scenario)
    assert "-  B1 -> store  BUNDLE    rows 0..1  z" in changed
    assert "+  B1 -> store  BUNDLE    rows 0..1  a" in changed


@pytest.mark.parametrize(
    "condition",
    ["rows b", "A dead", "A collecting", "A waits", "A failed Fenced", "A->B in flight 3", "B queued 1",
     "B performed 2", "complete 1", "asked 1", "withdrawn 1", "above FENCED", "never BUNDLE"],
)  # fmt: skip
def test_every_sort_of_expectation_can_fail(scenario: Path, condition: str) -> None:
    scenario.write_text(SCENARIO.replace("expect rows a", f"expect {condition}"))
    with pytest.raises(Unmet, match=f"expect {condition}: it"):
        replayed(read(scenario))


@pytest.mark.parametrize(
    "command",
    [
        "jump",
        "kill Z",
        "kill b",
        "records B: x",
        "deliver A->B",
        "promote C",
        "run until complete 1",
        "operator A: clock",
    ],
)
def test_a_command_that_cannot_be_carried_out_is_named(scenario: Path, command: str) -> None:
    scenario.write_text(SCENARIO + f"> {command}\n")
    with pytest.raises(Unmet):
        replayed(read(scenario))


def test_tasks_are_in_topological_order() -> None:
    topology = topology_of("A -> C, B -> C, C -> D")
    assert [task.name for task in topology.tasks] == ["A", "B", "C", "D"]
    assert [(c.source, c.target) for c in topology.channels] == [(-1, 0), (-1, 1), (0, 2), (1, 2), (2, 3), (3, -1)]


def test_long_lines_go_on_below_their_column() -> None:
    (lines,) = aligned([[Line("A1", "DATA", ("x" * 60, "y" * 60)), Line("A1 -> B1", "is", ("z",))]])
    assert lines == [f"  A1        DATA  {'x' * 60}", f"                  {'y' * 60}", "  A1 -> B1  is    z"]


SABOTAGES: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "04": (Holdings, "logs_for", lambda self, asker, depends: []),
    "08": (Topology, "shared_by", lambda self, task, depth: (task,)),
    "13": (Exchange, "_refuse", lambda self, *others: []),
    "16": (Receiver, "follows", lambda self, session, sequence: True),
    "17": (Sender, "_compare", lambda self: self._regenerated()),
    "20": (Outbox, "take", lambda self: [e for e in self._effects if not isinstance(e, Journal)]),
}


@pytest.mark.parametrize("number", sorted(SABOTAGES))
def test_a_sabotaged_protocol_is_another_conversation(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, instead = SABOTAGES[number]
    (path,) = chosen([number])
    monkeypatch.setattr(owner, name, instead)
    try:
        changed = difference(path)
    except Unmet as problem:
        changed = str(problem)
    assert changed
