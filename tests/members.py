"""Classes of cases of which named members run in every test run, and the others in campaigns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def members(cases: Iterable[Any], *always: Any) -> list[Any]:
    """Returns all cases for `parametrize`; those that `always` does not name are marked as a campaign.

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


def campaign(*values: Any, id: str | None = None) -> Any:
    """Returns one case that runs in campaigns only."""
    return pytest.param(*values, marks=pytest.mark.campaign, id=id)
