"""Checks of a source's promises, which the author of any source can run with pytest.

    @pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
    def test_my_source(check, tmp_path):
        check(conformance.Subject(MySource, holds=lambda partition: elements_of(partition), job_directory=tmp_path))

Each check receives a new subject and either returns or raises `NotConforming`, which names the broken promise. Some
checks need functions that make the system outside unavailable, let it forget elements or give it a partition (see
`Subject`). Without these functions, they raise `unittest.SkipTest`, which pytest reports as skipped.
"""

from collections.abc import Callable

from operators.sources.conformance import deaths, positions, servers
from operators.sources.conformance.source_subject import (
    Checkpoint,
    NotConforming,
    Reading,
    Subject,
    expect,
    refused,
    same,
)

__all__ = ["CHECKS", "Checkpoint", "NotConforming", "Reading", "Subject", "expect", "refused", "same"]

CHECKS: tuple[Callable[[Subject], None], ...] = positions.CHECKS + deaths.CHECKS + servers.CHECKS
"""The checks of the kit; each takes a fresh subject."""
