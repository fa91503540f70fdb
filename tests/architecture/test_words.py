"""Words that say nothing become fewer, never more, and the rules about them bite."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.architecture import words


def test_counts_only_fall() -> None:
    counts, allowed = Counter(rule for rule, _ in words.places()), words.allowed()
    risen = {
        rule: f"{count}, allowed {allowed.get(rule, 0)}"
        for rule, count in counts.items()
        if count > allowed.get(rule, 0)
    }
    assert not risen, f"{risen}; `python -m tests.architecture.words RULE` prints the places"


@pytest.mark.parametrize(
    "text",
    [
        "told = 1",
        "def f(made): ...",
        "def held(): ...",
        "self.given = 1",
        "for found in x: ...",
        "with x as word: ...",
        "try: f()\nexcept OSError as told: ...",
        "from x import y as found",
        "import x as made",
        "match x:\n    case [*held]: ...",
        "class Told: ...",
        "class _Made: ...",
        "GIVEN = 1",
        "given_ = 1",
        "self.told_as = 1",
        "def what_is_told(): ...",
        "fields_told = 1",
        "class ToldLater: ...",
        "def nobody_waits(): ...",
        "goes_on = 1",
    ],
)
def test_a_name_that_says_nothing_is_found(text: str) -> None:
    assert len(list(words.names(Path("x.py"), ast.parse(text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "message = told.x",
        "f(made)",
        "foundation = 1",
        "self.held_bytes = 1",
        "class Word: ...",
        "class State(Enum):\n    HELD = 1",
        "def test_a_reader_is_told(): ...",
    ],
)
def test_a_name_that_says_something_is_none(text: str) -> None:
    assert not list(words.names(Path("x.py"), ast.parse(text)))


def test_fragments_are_found_in_docstrings_of_all_kinds() -> None:
    tree = ast.parse(
        '"""Of a module."""\nclass A:\n    x = 1\n    """When it began."""\n    def f(self): "What it is."\n'
    )
    assert len(list(words.fragments(Path("x.py"), tree))) == 3
    assert not list(words.fragments(Path("x.py"), ast.parse('"""The module; see above."""\nx = "of no docstring"')))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("the digest behind it", 1),
        ("behind the last row", 1),
        ("a record is behind in event time", 0),
        ("it waits for so long", 1),
        ("it waits so long as nothing comes", 0),
        ("the line says why", 1),
        ("the line names the reason", 0),
        ("3 is no number", 1),
        ("it is no longer there", 0),
    ],
)
def test_a_word_for_everything_is_found(tmp_path: Path, text: str, count: int) -> None:
    module = tmp_path / "x.py"
    module.write_text(f'"""{text}."""')
    assert len(list(words.matches(words.STILTED, module))) == count


def test_an_opening_that_says_nothing_is_found() -> None:
    tree = ast.parse(
        'class A:\n    """Has a b."""\n    def f(self): "Has a host emptied."\n    def g(self): "Drain it."\n'
    )
    assert [line for _, line, _ in words.openings(Path("x.py"), tree)] == [3]


def test_lines_of_markdown_that_cannot_be_broken_are_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    long = "word " * 30
    page.write_text(f"{long}\n\n```\n{long}\n```\n\n| {long} |\n")
    assert [line for _, line, _ in words.wide(page)] == [1]
    page.write_text("Nobody is told.\n\n```\nnobody\n```\n")
    assert [text for _, _, text in words.markdown_prose(page)] == ["Nobody", "told"]
