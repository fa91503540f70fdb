"""The documents of the experiment of Figures 9 to 12 of FlameStream, and what is wrong with an index of them.

Documents are `*.py` files of the Python standard library, whole, in an order of chance that is always the same.  The
standard library of Python alone is imported, so that programs of other systems have the same documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.programs import inputs
from examples.corpus import STANDARD_LIBRARY, postings

CORPUS = Path(STANDARD_LIBRARY)
EMPTY_MAX = 100
"""More than there are empty files."""


def name_of(number: int) -> str:
    """Return what the change records of a document call it."""
    return f"document-{number}"


def texts(count: int) -> list[str]:
    """Return the first `count` documents that are not empty.

    Raises:
        ValueError: there are not so many.
    """
    whole = [text for text in inputs.documents(CORPUS, count + EMPTY_MAX) if text.strip()][:count]
    if len(whole) < count:
        raise ValueError(f"the standard library has {len(whole)} documents; {count} are wanted: give fewer seconds")
    return whole


def expected(count: int) -> list[dict[str, list[int]]]:
    """Return word → positions for each document, computed the plain way."""
    return [postings(text) for text in texts(count)]


def wrong(rows: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, int]:
    """Return faults of the rows by kind; a row contradicts the one before it of its word, or its document.

    Args:
        documents: as `expected` returns them.
    """
    by_name = {name_of(number): index for number, index in enumerate(documents)}
    seen: dict[tuple[str, str], int] = {}
    counts: dict[str, tuple[int, int]] = {}
    contradicted = 0
    for row in rows:
        term, name = row["word"], row["document"]
        seen[term, name] = seen.get((term, name), 0) + 1
        before, occurrences = counts.get(term, (0, 0))
        counts[term] = (row["documents"], row["occurrences"])
        follows = counts[term] == (before + 1, occurrences + len(row["positions"]))
        contradicted += not follows or by_name[name].get(term) != row["positions"]
    due = sum(len(index) for index in documents)
    return {"lost": due - len(seen), "doubled": len(rows) - len(seen), "contradicted": contradicted}
