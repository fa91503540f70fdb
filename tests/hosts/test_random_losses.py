"""Random faults of hosts, by the seed: one in every run of the tests, hundreds in a campaign."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosts.conftest import ForkedSite
from tests.members import members
from tests.soak.host_losses import run_job

FAULTS, FAULTS_OF_CAMPAIGN = 1, 15


@pytest.mark.parametrize("seed", members(range(1, 21), 1))
def test_every_row_is_exact_whatever_happens_to_hosts(seed: int, tmp_path: Path) -> None:
    outcome = run_job(seed, FAULTS if seed == 1 else FAULTS_OF_CAMPAIGN, tmp_path / "wrong", site_of=ForkedSite)
    assert outcome.exact, outcome
    assert outcome.rows
