"""Rows posted to a real service by a whole job, whose processes die, while the service comes and goes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness.runs import sets
from tests.faults.conftest import Start
from tests.faults.job import NUMBERED, assert_numbered
from tests.unit.sinks.receiver import Receiver
from tests.unit.sinks.service import serving

COUNT = 6000


def test_every_row_takes_effect_once_and_none_is_contradicted(start: Start, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    receiver = Receiver(tmp_path / "in")
    with serving(tmp_path) as url:
        job = start(
            NUMBERED,
            *sets(sink="webhook", out=f"{url}/in", count=COUNT, gate=tmp_path / "gate"),
        )
        job.until_warm(records=50)
        for task in ("out/0", "number/0", "out/0"):
            job.replace(task)
        with receiver.away():
            job.until("out/0 waits", lambda view: any(task["waiting"] for task in view["tasks"]))
            before = len(receiver.deliveries())
            (tmp_path / "in" / "deaf").write_text("1")  # the first request when it is back is taken, and not answered
            job.replace("out/0")
            assert len(receiver.deliveries()) == before
        job.until_written(before + 100)
        job.kill_everything()
        (tmp_path / "gate").touch()
        job.start("--resume")
        job.finish_well()
    assert_numbered(receiver.rows(), COUNT)
    assert 0 < receiver.doubled() <= 20 * 6, "at most the requests that were under way came again, one of them for sure"
