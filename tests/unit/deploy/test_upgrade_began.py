"""A later version of a job of several hosts knows when the job began to read, so that its rates do not begin again."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.savepoints.upgrading import _began


def first(at_ns: int) -> dict[str, Any]:
    return {"kind": "first_record", "at_ns": at_ns}


def resumed(at_ns: int) -> dict[str, Any]:
    return {"kind": "resumed", "at_ns": at_ns}


@pytest.mark.parametrize(
    ("decided", "expected"),
    [
        ([], []),
        ([resumed(3)], []),
        ([first(5), resumed(9), first(10)], [first(5)]),
        ([first(5), resumed(3)], []),
        ([first(5), resumed(3), first(4)], [first(4)]),
    ],
    ids=["nothing", "never read", "resumed", "machine restarted", "and read again"],
)
def test_the_earliest_record_of_one_clock_is_the_beginning(
    decided: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    assert _began(decided) == expected
