"""The inverted index keeps the index: the posting list of each word is its state."""

from __future__ import annotations

from examples.inverted_index import Index
from operators.testing import OperatorTrial


def test_a_document_that_comes_again_replaces_its_posting_also_after_a_restore() -> None:
    trial = OperatorTrial(Index(), key=lambda record: record[0])
    assert trial.give(("a", "one.py", [0, 4]), ("a", "two.py", [7]))[-1] == {
        "word": "a", "document": "two.py", "positions": [7], "documents": 2, "occurrences": 3,
    }  # fmt: skip
    trial.checkpoint()
    trial.crash()
    (row,) = trial.give(("a", "one.py", [1, 2, 3, 4, 5]))
    assert (row["documents"], row["occurrences"]) == (2, 6), "of the posting before, only its state knows the length"
