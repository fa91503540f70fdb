"""Tiny jobs explored whole, in bounds that fit a test run; `python -m tests.exhaustive` takes the larger ones."""

from __future__ import annotations

import pytest

from tests.exhaustive.explore import Exploration
from tests.exhaustive.story import told
from tests.exhaustive.world import Job
from tests.exhaustive.worlds import CHAIN, MERGE, PAIR

SMALL = [
    Job("pair, two crashes", PAIR, records=1, crashes=2),
    Job("pair, checkpoint", PAIR, records=1, asks=1),
    Job("pair, zombie", PAIR, records=1, zombies=True),
    Job("chain", CHAIN, records=1),
    Job("chain, depth 1", CHAIN, records=1, depth=1),
    Job("merge without failures", MERGE, records=1, crashes=0),
]


@pytest.mark.parametrize("job", SMALL, ids=lambda job: job.name)
def test_every_invariant_holds_in_every_state(job: Job) -> None:
    found = Exploration(job, 20_000).run()
    assert found.breach is None, "\n".join(told(found, found.breach))
    assert found.whole and found.ended and found.states > found.depth
