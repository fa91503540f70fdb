"""The glossary has the words of the protocol, and every term in it is used."""

from __future__ import annotations

import inspect
import re
from functools import cache
from pathlib import Path

import pytest

from causal import effects, events
from tests.architecture.source import PACKAGES

DOCS = Path(__file__).resolve().parents[2] / "docs"
GLOSSARY = DOCS / "glossary.md"
TERMS = [
    term
    for names in re.findall(r"^\* \*\*(.+?)\*\*: ", GLOSSARY.read_text(), re.MULTILINE)
    for term in names.split(", ")
]
CLASSES = [
    each
    for module in (events, effects)
    for each in vars(module).values()
    if inspect.isclass(each) and each.__module__ == module.__name__
]
PLAIN = frozenset(
    "ahead down fail inquiry open peer phase query read ready remove reply report resolve state up write written "
    "begin append commit complete end".split()
)
"""Plain English, in addition to the terms of the glossary."""
WORD = re.compile(r"[A-Z][a-z]*")


def stem(part: str) -> str:
    """Return one form for the forms of a word: `Commits`, `committed` and `commit`, `query` and `queries`."""
    part = part.lower()
    for ending in ("ing", "ation", "ate", "ion", "ed", "es", "er", "s", "e", "y"):
        if part.endswith(ending) and len(part) - len(ending) >= 3:
            part = part.removesuffix(ending)
            break
    return part[:-1] if len(part) > 3 and part[-1] == part[-2] else part


@cache
def known() -> frozenset[str]:
    return frozenset(stem(part) for term in (*TERMS, *PLAIN) for part in re.split(r"[\s-]", term))


def unknown(name: str) -> list[str]:
    """Return the words of a class's name that neither the glossary nor the list of plain words has."""
    return [part for part in WORD.findall(name) if stem(part) not in known()]


def test_every_term_is_used() -> None:
    pages = [page.read_text() for page in sorted(DOCS.rglob("*.md")) if page != GLOSSARY]
    modules = [path.read_text() for package in PACKAGES for path in (DOCS.parent / package).rglob("*.py")]
    text = "\n".join([*pages, *modules]).lower()
    places = {term: re.escape(term.lower()).replace(r"\ ", r"[-_\s]").replace(r"\-", r"[-_\s]") for term in TERMS}
    unused = [term for term, place in places.items() if not re.search(rf"(?<![a-z]){place}", text)]
    assert len(TERMS) == len(set(TERMS)) > 80
    assert unused == []


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_event_or_effect_is_named_in_words_of_the_glossary(kind: type) -> None:
    assert unknown(kind.__name__) == [], "add a term to docs/glossary.md, or take one that it has"


def test_a_name_in_other_words_is_found() -> None:
    assert unknown("SegmentWritten") == unknown("StagedRows") == []
    assert unknown("BlobRead") == ["Blob"] and unknown("SegmentFlushed") == ["Flushed"]


def test_the_plain_words_are_needed() -> None:
    terms = {stem(part) for term in TERMS for part in re.split(r"[\s-]", term)}
    named = {stem(part) for kind in CLASSES for part in WORD.findall(kind.__name__)}
    assert [part for part in sorted(PLAIN) if stem(part) in terms or stem(part) not in named] == []
