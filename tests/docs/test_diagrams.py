"""The diagrams in the documentation are those of the tables."""

from __future__ import annotations

import re

import pytest

from causal.channels.states import RECEIVER, SENDER
from docs.diagrams import PAGES, ROOT, drawn, receiver, sender


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_drawn_from_the_tables(name: str) -> None:
    page = (ROOT / name).read_text()
    assert "drawn by docs/diagrams.py" in page and " --> " in page
    assert drawn(page) == page, "run python docs/diagrams.py"


@pytest.mark.parametrize("table, diagram", [(SENDER, sender()), (RECEIVER, receiver())], ids=["sender", "receiver"])
def test_a_diagram_has_every_transition_to_another_state(table: object, diagram: str) -> None:
    assert isinstance(table, dict)
    edges = {(before.value, after.value) for before, steps in table.items() for after in steps.values()}
    shown = set(re.findall(r"^    (\w+) --> (\w+): ", diagram, re.MULTILINE))
    assert shown == {(before, after) for before, after in edges if before != after}
