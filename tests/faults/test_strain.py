"""Bad input with a kill in the middle: nothing is lost or doubled, no process is mistaken for hung, memory is bounded.

`python -m benchmarks bad_input` measures its memory at full size; nothing here looks at a duration.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from benchmarks.jobs import strained_fold
from benchmarks.recovery.bad_input_memory import Budget, sampled
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES
from tests.members import members

PIPELINE = PIPELINES / "held_fold.py"
CREDIT_BYTES, INFLIGHT_BYTES, RECORD_BYTES_MAX = 1 << 18, 8 << 20, 4 << 20
CONFIG = {
    "channel_window_bytes": CREDIT_BYTES,
    "inflight_memory_bytes_max": INFLIGHT_BYTES,
    "record_bytes_max": RECORD_BYTES_MAX,
}
IMPATIENT = {"heartbeat_timeout_ms": 4000, "crash_loop_max": 3}
"""A batch that took all records of these jobs together would be silent for longer."""


@dataclass(frozen=True)
class Strain:
    """Settings of the pipeline, and which task is killed once so many rows are out."""

    settings: Mapping[str, Any]
    victim: str
    rows: int
    config: Mapping[str, Any] = field(default_factory=dict)


STRAINS = {
    "hot key": Strain({"count": 30_000, "hot": "yes", "rounds": 40}, "fold/0", 2000),
    "giant records": Strain(
        {"count": 3000, "giant_bytes": RECORD_BYTES_MAX - 64, "giant_every": 250, "rate": 1000}, "fold/1", 300
    ),
    "giant records, source": Strain(
        {"count": 3000, "giant_bytes": RECORD_BYTES_MAX - 64, "giant_every": 250, "rate": 1000}, "numbers/0", 300
    ),
    "tiny batches": Strain({"count": 30_000}, "fold/0", 1000, {"batch_elements_max": 1}),
    "slow operator": Strain({"count": 3000, "sleep_s": 0.002, "width": 1}, "fold/0", 400, IMPATIENT),
    "slow sink": Strain({"count": 3000, "sink_row_s": 0.002, "width": 1}, "out/0", 400, IMPATIENT),
}


@pytest.mark.parametrize("name", members(STRAINS, "hot key"))
def test_bad_input_loses_nothing_and_keeps_to_its_memory(start: Start, tmp_path: Path, name: str) -> None:
    strain = STRAINS[name]
    out, gate, count = tmp_path / "fold.db", tmp_path / "gate", strain.settings["count"]
    values = {"out": out, "gate": gate, **strain.settings}
    job = start(PIPELINE, *sets(**values), config={**CONFIG, **strain.config})
    with sampled(job.view) as peaks:
        job.until_written(strain.rows)
        job.replace(strain.victim)
        gate.touch()
        report = job.finish_well()
    wrong = strained_fold.wrong(out, count, values.get("hot") == "yes", 1)
    assert wrong == {"missing": 0, "doubled": 0, "false": 0}
    assert report["records_in"] == count
    assert strain.victim in [recovery["task"] for recovery in report["recoveries"]]
    width = values.get("width", 2)
    giant = RECORD_BYTES_MAX if "giant_bytes" in values else 4096
    inputs = {f"fold/{index}": 1 for index in range(width)} | {"out/0": width}
    shares = peaks.shares(Budget(INFLIGHT_BYTES, CREDIT_BYTES, giant, inputs, frozenset(("out/0",))))
    # The successor of the one that was killed may have come and gone between two looks.
    others = {"numbers/0", *inputs} - {strain.victim}
    assert others <= set(shares) <= others | {strain.victim} and max(shares.values()) <= 1, (shares, peaks)


def test_a_row_that_is_missing_doubled_or_false_is_found(tmp_path: Path) -> None:
    def wrong_rows(name: str, rows: list[tuple[int, int, int]]) -> dict[str, int]:
        database = sqlite3.connect(tmp_path / name)
        database.execute("CREATE TABLE output(task TEXT, position INTEGER, record TEXT)")
        stored = ((place, json.dumps(row)) for place, row in enumerate(rows))
        database.executemany("INSERT INTO output VALUES('out/0', ?, ?)", stored)
        database.commit()
        database.close()
        return strained_fold.wrong(tmp_path / name, 2, False, 1)

    exact = [(0, 1, 0), (0, 1, 0), (1, 1, 1), (1, 1, 1)]  # each record's row, and the last one of its key
    assert wrong_rows("exact", exact) == {"missing": 0, "doubled": 0, "false": 0}
    assert wrong_rows("short", exact[1:])["missing"] == 1
    assert wrong_rows("twice", [*exact, exact[-1]])["doubled"] == 1
    assert wrong_rows("false", [(0, 1, 7), *exact[1:]])["false"] == 1
