"""A sample of the examples that `python -m tests.properties.batching` runs without end."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from operators import Operator
from tests.members import sample
from tests.properties import batching


@pytest.mark.parametrize("seed", sample(range(4), 1))
@pytest.mark.parametrize("name", batching.DRAWS)
def test_results_by_event_time_do_not_depend_on_batches(name: str, seed: int) -> None:
    batching.examine(name, seed)


def test_a_result_that_depends_on_batches_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that emits the watermark as records arrive has such a result, and is documented so."""

    def emits_watermarks(chance: Random) -> batching.Case:
        class Emitting(Operator):
            def process(self, record: batching.Record, ctx: Any) -> Any:
                yield [record["n"], ctx.watermark()]

        return batching._one(chance, lambda stream: stream.key_by(batching.key_of).process("op", Emitting()))

    monkeypatch.setitem(batching.DRAWS, "emits-watermarks", emits_watermarks)
    with pytest.raises(AssertionError, match="the rows are others"):
        for seed in range(20):
            batching.examine("emits-watermarks", seed)
