"""`causal state --at` and `causal serve` at earlier epochs show what the job had at that epoch, although tasks died."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import kill
from benchmarks.harness.runs import sets
from operators.recordings.recording import open_recording
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, ended_of, wait_for
from tests.faults.serving import Serving
from tests.faults.test_queries import COUNT, KEYS, assert_of_one_moment, kept_state, state

WINDOW = "600s,1GB"
"""A window of which about every second checkpoint is kept, so that some epochs are answered by a replay."""


def test_an_earlier_epoch_has_the_state_that_was_shown_then(start: Start, tmp_path: Path) -> None:
    settings = sets(count=COUNT, rate=300, gate=tmp_path / "gate", out=tmp_path / "rows")
    job = start(PIPELINES / "kept.py", *settings, "--checkpoint-interval", "0.3", "--record", WINDOW)
    job.until_warm(records=50)
    shown: dict[int, Any] = {}
    with Serving(job.state) as serving:
        killed = [job.pid_of("keep/0"), job.pid_of("numbers/0")]

        def enough() -> bool:
            answer = serving.state("keep", "k1")
            shown[answer["epoch"]] = serving.get(f"/state/keep/k1?as_of={answer['epoch']}")
            if killed and len(shown) % 3 == 0:
                kill(killed.pop())
            return len(shown) >= 8

        wait_for("eight checkpoints were seen", enough)
        (tmp_path / "gate").touch()
        job.finish_well()
        recording = open_recording(job.state)
        kept = [epoch for epoch in shown if epoch in recording.checkpoints()]
        replayed = [epoch for epoch in shown if epoch not in recording.checkpoints()]
        assert kept and replayed
        listed = [each["epoch"] for each in serving.get("/state")["kept"]]
        assert set(listed) >= set(recording.checkpoints()) - {0} and 0 not in listed
        for epoch in kept:
            assert serving.get(f"/state/keep/k1?as_of={epoch}") == shown[epoch]
        status, refused = serving.request(f"/state/keep/k1?as_of={replayed[0]}")
        assert status in (200, 410), "the last two checkpoints of the job itself are kept, too"
    counts = {}
    for epoch in (kept[0], replayed[0], replayed[-1]):
        answer = kept_state(job, 1, "--at", str(epoch))
        [then] = shown[epoch]["tasks"]
        assert answer["epoch"] == epoch and answer["task"] == then["task"]
        assert answer["state"]["numbers"] == then["state"]["numbers"]
        counts[epoch] = assert_of_one_moment(answer, 1)
    assert sorted(counts.values()) == [counts[epoch] for epoch in sorted(counts)] and len(set(counts.values())) > 1
    _, answer, _ = state(job, "keep", "k1", "--at", str(replayed[0]))
    assert answer["origin"].startswith("epochs ") and "replayed from checkpoint" in answer["origin"]
    shown_keys = ended_of(job.directory, "state", str(job.state), "keep", "--at", str(replayed[-1])).stdout
    assert shown_keys.splitlines()[1:-1] == [f"k{key}" for key in range(KEYS)]
    for options, line in (
        (["k1", "--at", "9999"], "contains no checkpoint 9999; it has epochs 0 to"),
        (["k1", "--at", "noon"], "use a time such as"),
        (["k1", "--at", "5", "--live"], "use only one of them"),
        (["k1", "--at", "5", "--prefix", "k"], "use either a prefix or a key"),
    ):
        said = ended_of(job.directory, "state", str(job.state), "keep", *options)
        assert (said.returncode, said.stdout) == (2, "") and line in said.stderr and said.stderr.count("\n") == 1


@pytest.mark.parametrize("at", ["3", "2026-11-27T14:03:10"])
def test_a_job_without_a_recording_says_how_to_record_it(start: Start, tmp_path: Path, at: str) -> None:
    settings = sets(count=50, rate=1000, gate=tmp_path / "gate", out=tmp_path / "rows")
    (tmp_path / "gate").touch()
    job = start(PIPELINES / "kept.py", *settings, "--checkpoint-interval", "0.3")
    job.finish_well()
    said = ended_of(job.directory, "state", str(job.state), "keep", "k1", "--at", at)
    assert said.returncode == 2 and "has no recording; record it with: causal run" in said.stderr
