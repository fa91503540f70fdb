"""A job whose records, answers, keys and nesting are exactly at their bounds, and above, while its tasks are killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.harness.runs import sets
from benchmarks.harness.written import lines_in
from causal.determinants import ANSWER_BYTES_MAX
from causal.records.values import NESTING_MAX
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, causal
from tests.faults.test_bad_input import one_line

RECORD_BYTES_MAX = 1 << 20
LEVELS_MAX = NESTING_MAX - 1
"""Around a record that travels is the list of its batch."""
BOUNDS = {"bytes": RECORD_BYTES_MAX, "levels": LEVELS_MAX, "answer": ANSWER_BYTES_MAX}
CASES = [(kind, bound + more) for kind, bound in BOUNDS.items() for more in (0, 1)]
AROUND = {"bytes": 5, "levels": 0, "answer": 7}
"""Room that the pipeline leaves: for the heads of texts, bytes and answers."""
WORDS = {"bytes": "but record_bytes_max is", "levels": "nested too deeply", "answer": "the limit is 16,777,216"}
COUNT = 80
CONFIG = {"record_bytes_max": RECORD_BYTES_MAX, "on_error": "dead-letter"}


def settings(directory: Path, cases: list[tuple[str, int]]) -> list[str]:
    listed = ",".join(f"{kind}:{size}" for kind, size in cases)
    return sets(cases=listed, count=COUNT, rate=50, gate=directory / "gate")


def test_what_is_at_a_bound_is_taken_once_and_what_is_above_set_aside_once(start: Start, tmp_path: Path) -> None:
    job = start(PIPELINES / "limits.py", *settings(tmp_path, CASES), "--checkpoint-interval", "600", config=CONFIG)
    job.until_written(len(CASES) * 7)
    job.replace("grown/0", "keeps/0", "out/0")
    (tmp_path / "gate").touch()
    report = job.finish_well()
    assert {recovery["task"] for recovery in report["recoveries"]} >= {"grown/0", "keeps/0", "out/0"}
    rows = list(lines_in(tmp_path / "rows"))
    large = Counter((name, row[name]) for row in rows for name in ("bytes", "levels") if name in row)
    assert large == Counter(
        ("levels" if kind == "levels" else "bytes", bound - AROUND[kind]) for kind, bound in BOUNDS.items()
    )
    assert len(rows) == COUNT - len(BOUNDS)
    assert max(row["key"] for row in rows) == RECORD_BYTES_MAX - AROUND["bytes"]
    letters = {letter["position"]: letter["error"] for letter in job.letters()}
    assert set(letters) == {CASES.index((kind, bound + 1)) * 7 for kind, bound in BOUNDS.items()}
    for kind, words in WORDS.items():
        assert words in letters[CASES.index((kind, BOUNDS[kind] + 1)) * 7]


@pytest.mark.campaign
def test_above_a_bound_the_job_ends_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    arguments = settings(tmp_path, [("levels", LEVELS_MAX), ("levels", LEVELS_MAX + 1)])
    status, said = causal(tmp_path, "run", str(PIPELINES / "limits.py"), *arguments)
    line = one_line(said)
    assert status == 1 and "'grown'" in line and "position 7" in line and "nested too deeply" in line
    assert "in a row" not in line
