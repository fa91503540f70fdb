"""A running job that is rescaled or rolled back: every order of the steps, and a death at each of them."""

from __future__ import annotations

from typing import Any

import pytest

from standby.supervision import next_version
from standby.supervision.next_version import NextVersion
from tests.exhaustive.rescale.command import LATER
from tests.exhaustive.rescale.draft import Draft
from tests.exhaustive.rescale.state import NEW, OLD
from tests.exhaustive.rescale.world import Job, explore
from tests.members import campaign
from tests.simulation.breaking import Patches, replaced
from tests.simulation.sabotage import SABOTAGES

SMALL = Job("rescale", records=2)
LARGE = Job("rescale-three-records", records=3)
SHRINK = Job("rescale-to-one", records=2, widths=(2, 1))
ROLLBACK = Job("rollback", records=2, widths=(1, 1), returns=True)


@pytest.mark.parametrize("job", [SMALL, *map(campaign, (LARGE, SHRINK))], ids=lambda job: job.name)
def test_a_death_at_any_step_leaves_the_old_or_the_new_version_and_every_row_once(job: Job) -> None:
    verdict = explore(job)
    assert not verdict.breach, (verdict.breach, verdict.path)
    assert verdict.whole and verdict.deaths > 1000
    assert verdict.ends[OLD] > 50 and verdict.ends[NEW] > 200


def test_a_death_at_any_step_of_a_rollback_leaves_a_version_with_every_row_once() -> None:
    verdict = explore(ROLLBACK)
    assert not verdict.breach, (verdict.breach, verdict.path)
    assert verdict.whole and verdict.deaths > 600 and verdict.ends[OLD] > 10 and verdict.ends[NEW] > 200


def test_without_a_death_the_job_is_the_new_version() -> None:
    verdict = explore(Job("no death", records=3, crashes=0))
    assert not verdict.breach and verdict.whole and set(verdict.ends) == {NEW}


def test_a_bound_that_is_reached_is_not_called_whole() -> None:
    assert not explore(SMALL, states_max=100).whole


def _first_state_only() -> Patches:
    write = Draft.write

    def early(self: Draft, task: str, epoch: int, incarnation: int, at: int) -> str:
        return write(self, task, epoch, incarnation, at if incarnation < LATER else 1)

    return {(Draft, "write"): early}


def _remembered_by_a_resumed_job() -> Patches:
    apply = NextVersion.apply

    def remembers(self: NextVersion, record: Any) -> None:
        if record["kind"] != "resumed":
            apply(self, record)

    return {(NextVersion, "apply"): remembers}


def _continues_without_its_rows() -> Patches:
    """A rollback that is interrupted after it has begun to withdraw rows leaves the current version at work."""
    end = NextVersion.end

    def ends(self: NextVersion, *arguments: Any) -> None:
        stop, self._stop = self._stop, lambda reason: None
        end(self, *arguments)
        self._stop = stop

    return {(NextVersion, "end"): ends}


def test_a_rollback_that_leaves_the_current_version_at_work_is_found() -> None:
    with replaced(_continues_without_its_rows()):
        assert explore(ROLLBACK).breach.startswith(("liveness", "exactly once"))


@pytest.mark.parametrize(
    ("patches", "shows"),
    [
        (SABOTAGES["committed-before-the-current-version-stands"].patches, "is promoted at checkpoint"),
        campaign(SABOTAGES["promoted-after-the-final-savepoint"].patches, "failed 5 times"),
        campaign(SABOTAGES["incarnations-continue-after-a-change"].patches, "failed 5 times"),
        campaign(lambda: {(Draft, "committed"): False}, "files: read/0"),
        campaign(_first_state_only, "exactly once: 1"),
        campaign(_remembered_by_a_resumed_job, "liveness"),
        campaign(lambda: {(next_version, "LEASE_NS"): 10**18}, "liveness"),
    ],
)
def test_a_sabotage_is_found(patches: Any, shows: str) -> None:
    with replaced(patches()):
        verdict = explore(SMALL)
    assert shows in verdict.breach, verdict.breach
