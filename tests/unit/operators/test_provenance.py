"""The origins of records have a bound, beyond which a lineage is refused."""

from __future__ import annotations

import pytest

from causal.errors import PipelineError
from operators.replay import provenance
from operators.replay.provenance import FOLDS, Event, Provenance, TracedOperator


def test_more_records_than_are_kept_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "VISITS_MAX", 5)
    origins = Provenance()
    place = origins.operator(TracedOperator("total/0", "total", "process", FOLDS, stateful=True))
    origins.events.append(Event(1, "total/0", 1, "record", 0))
    assert origins.visit(place, 0, "abc", [-1] * 3, [], frozenset()) == 0
    assert origins.visit(place, 0, "de", [-1] * 2, [], frozenset()) == 3
    with pytest.raises(PipelineError, match="have received more than 5 records; use a lower --back"):
        origins.visit(place, 0, "f", [-1], [], frozenset())
