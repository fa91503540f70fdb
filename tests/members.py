"""Campaigns: cases of which `make test` takes a few, always the same, and `make soak` all the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def members(cases: Iterable[Any], *always: Any) -> list[Any]:
    """Return all cases for `parametrize`; those that `always` does not name are marked as a campaign.

    Args:
        cases: a tuple is the values of several arguments, as `parametrize` takes them.

    Raises:
        ValueError: `always` names what is no case.
    """
    every = list(cases)
    strange = [case for case in always if case not in every]
    if strange:
        raise ValueError(f"{strange} are no members of {every}")
    return [case if case in always else campaign(*(case if isinstance(case, tuple) else (case,))) for case in every]


def except_for(cases: Iterable[Any], *slow: Any) -> list[Any]:
    """Return all cases for `parametrize`; those that are named are marked as a campaign."""
    every = list(cases)
    return members(every, *(case for case in every if case not in slow))


def sample(cases: Iterable[Any], count: int) -> list[Any]:
    """Return all cases for `parametrize`; all but `count` of them, evenly spread, are marked as a campaign."""
    every = list(cases)
    count = min(count, len(every))
    return members(every, *(every[place * len(every) // count] for place in range(count)))


def campaign(*values: Any, id: str | None = None) -> Any:
    """Return one case that runs in campaigns only."""
    return pytest.param(*values, marks=pytest.mark.campaign, id=id)


def examples(divided_by: int, **others: Any) -> settings:
    """Return settings of a Hypothesis test whose examples take so many times as long as those of most."""
    return settings(max_examples=max(1, settings().max_examples // divided_by), **others)
