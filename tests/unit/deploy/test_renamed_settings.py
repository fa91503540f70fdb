"""Settings under their names before version 0.2.0 are read, and never together with the new name."""

from __future__ import annotations

import pytest

from causal.config import RENAMED, JobConfig
from causal.errors import PipelineError
from deploy.settings import checked

VALUES = {"sink_patience_s": 7.0, "suspect_after_ms": 1234, "credit_bytes": 65536, "check": True}


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_means_the_new_one(old: str) -> None:
    assert checked({old: VALUES[old]}, "job.toml") == {RENAMED[old]: VALUES[old]}
    job = JobConfig.from_mapping({"run": "r", "name": "n", "pipeline": "/p.py", old: VALUES[old]}, "job.json")
    assert getattr(job, RENAMED[old]) == VALUES[old]


@pytest.mark.parametrize("old", RENAMED)
def test_both_names_at_once_are_refused(old: str) -> None:
    both = {RENAMED[old]: VALUES[old], old: VALUES[old]}
    for settings in (both, dict(reversed(both.items()))):
        with pytest.raises(PipelineError, match="is set twice"):
            checked(settings, "job.toml")
