"""The view in a job directory, which the job's supervisor replaces twice a second."""

from __future__ import annotations

import json
import time
from pathlib import Path

from deploy.jobs.lookup import VIEW
from standby.supervision.job_view import JobView


def latest(job: Path) -> JobView | None:
    """Return the supervisor's latest view; None if there is none yet.

    Raises:
        ValueError: the view is damaged, or was written by an incompatible version.
    """
    try:
        return JobView.of(json.loads((job / VIEW).read_bytes()))
    except FileNotFoundError:
        return None


def view_age_s(job: Path) -> float:
    """Return how many seconds ago the supervisor wrote its latest view, which must exist."""
    return max(0.0, time.time() - (job / VIEW).stat().st_mtime)
