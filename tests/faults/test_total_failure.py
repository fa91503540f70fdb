"""Every process of a job dies at the same moment: what was visible stays true, for the sinks' stores hold its reasons.

`python -m benchmarks total_failure` does the same a hundred times.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from benchmarks.__main__ import main
from benchmarks.harness.runs import RunFailed
from tests.soak import total_failure
from tests.soak.total_failure_run import Lines, begun

UP_AND_EARLY = 4
"""The seed with which the first strike hits a job that is up, and the second one that is not up again yet."""

RATE = 40.0
"""Elements per second of each source: enough for rows that a second execution could contradict."""

PROCESSES_MIN = 13
"""Root, supervisor, agent and the ten tasks at least: on a busy machine what else there will be is not there yet."""


@pytest.mark.usefixtures("forked_runs")
def test_total_failures_are_not_seen_in_database_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(total_failure, "RATE", RATE)
    report_path = tmp_path / "report.json"
    arguments = ("--times", "2", "--rounds", "0", "--seed", str(UP_AND_EARLY), "--load-bytes", "8")
    assert main(["total_failure", *arguments, "--json", str(report_path)]) == 0
    report = json.loads(report_path.read_text())
    output = report["output"]
    assert output["seen"] * 2 == output["rows"] > 0, "a reader saw every row, and both sinks have the same"
    assert [output[what] for what in ("lost", "doubled", "contradicted", "visible_contradicted")] == [0, 0, 0, 0]
    assert max(report["figures"]["struck"]["runs"]) >= PROCESSES_MIN
    assert report["figures"]["out.determinant_bytes_per_row"]["median"] > 0


@pytest.mark.campaign
@pytest.mark.usefixtures("forked_runs")
def test_without_determinants_in_the_bundles_it_is_noticed_at_once(tmp_path: Path) -> None:
    with begun(tmp_path, RATE, load_bytes=8, carried=False) as job:
        job.live(Random(1), up=True)
        with pytest.raises(RunFailed, match=r"differ from the rows up to \d+ in its store"):
            job.finish()


def test_a_reader_of_lines_notices_what_changes(tmp_path: Path) -> None:
    path = tmp_path / "out-0.jsonl"
    lines = Lines(tmp_path)
    path.write_text("1\n2\n3")
    lines.look()
    path.write_text("1\n2\n4\n5\n")
    assert lines.changed() == 0, "a line counts when its newline is there"
    lines.look()
    path.write_text("1\n2\n3\n5\n")
    assert lines.changed() == 1
    path.write_text("1\n2\n4\n")
    assert lines.changed() == 1
