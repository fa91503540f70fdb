"""A setting that a resume cannot change is refused in the spelling of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from causal.config import JobConfig
from causal.errors import PipelineError
from deploy.settings import resumed


@pytest.mark.parametrize(
    ("before", "now", "shown"),
    [({}, 1, "full"), ({"sharing_depth": 2}, 1, "2")],
    ids=["full", "a number"],
)
def test_a_sharing_depth_is_shown_as_it_is_given(before: dict[str, Any], now: int, shown: str) -> None:
    with pytest.raises(PipelineError, match=f"--resume keeps sharing_depth at {shown}, .* start without --resume"):
        resumed(JobConfig("r", "j", "j.py", **before), Path("j.py"), {"sharing_depth": now})
