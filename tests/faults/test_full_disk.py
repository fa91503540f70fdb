"""A disk fills up under a running job: it waits or fails in one line, and nothing is wrong once there is room again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.harness.processes import kill
from benchmarks.harness.runs import sets
from benchmarks.harness.written import records_in
from causal.errors import Unavailable
from standby.storage import journal
from standby.storage.journal import Journal
from tests.faults.conftest import POOL, HeldChain, Start
from tests.faults.job import PIPELINES, Job
from tests.soak.disk import SmallDisk, permitted

StartChain = Callable[..., HeldChain]
Mount = Callable[[Job, str], SmallDisk]

DISK_BYTES = 48 << 20


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """`mount(job, name)` puts a small disk in the place of a directory of the job, which is interrupted meanwhile."""
    if not permitted(tmp_path):
        pytest.skip("mounting a small disk is not permitted here (root can)")
    disks: list[SmallDisk] = []

    def put(job: Job, name: str) -> SmallDisk:
        job.until("it runs", lambda view: view["state"] == "running")
        job.interrupt()
        assert job.finish()[0] == 130
        path = job.state / name
        before = path.rename(job.directory / name)
        disks.append(SmallDisk(path, DISK_BYTES))
        shutil.copytree(before, path, dirs_exist_ok=True)
        return disks[-1]

    yield put
    for disk in disks:
        disk.close()


def test_a_full_disk_for_snapshots_delays_checkpoints_and_no_more(mount: Mount, start_chain: StartChain) -> None:
    chain = start_chain("--checkpoint-interval", "0.4", *POOL)
    disk = mount(chain.job, "checkpoints")
    chain.job.start("--resume")
    before = chain.job.until_warm()["checkpoint"]["count"]
    disk.fill()
    kill(chain.job.pid_of("score/0"))  # it replays up to the barrier of a checkpoint that cannot be written
    chain.job.until("a snapshot is refused", lambda view: view["checkpoint"]["under_way"])
    disk.make_room()
    chain.until_checkpoint(before + 2)
    chain.finish_exactly()


@pytest.mark.campaign
def test_a_disk_that_stays_full_ends_the_job_in_one_line_and_room_lets_it_resume(
    mount: Mount, start_chain: StartChain
) -> None:
    chain = start_chain("--checkpoint-interval", "0.4", crash_loop_max=1)
    disk = mount(chain.job, "checkpoints")
    chain.job.start("--resume")
    chain.job.until_warm()
    disk.fill()
    status, said = chain.job.finish()
    assert status == 1 and len(said.splitlines()) == 1, said
    assert "checkpoints/" in said and "No space left on device" in said and "free space" in said, said
    disk.make_room()
    chain.job.start("--resume")
    chain.finish_exactly()


@pytest.mark.campaign
def test_a_full_disk_for_what_outgrows_memory_costs_nothing_but_speed(
    mount: Mount, start: Start, tmp_path: Path
) -> None:
    config = {"inflight_memory_bytes_max": 1 << 18, "batch_elements_max": 128, "checkpoint_interval_s": 1.0}
    count = 12_000
    gate = tmp_path / "gate"
    job = start(PIPELINES / "heavy.py", *sets(count=count, gate=gate), config=config)
    spill = mount(job, "spill")
    for left in spill.path.rglob("*.seg"):
        left.unlink()  # as a resumed job does
    spill.fill()
    job.start("--resume")
    job.until_written(count // 12)
    assert not list(spill.path.rglob("*.seg")), "nothing can have been written"
    job.replace("slow/0")
    job.until_written(count // 6)
    spill.make_room()
    job.until("elements are on disk", lambda view: any(spill.path.rglob("*.seg")))
    job.replace("slow/0")
    gate.touch()
    report = job.finish_well()
    assert [recovery["task"] for recovery in report["recoveries"]] == ["slow/0", "slow/0"]
    rows = list(records_in(tmp_path / "heavy.db"))
    assert [row["i"] for row in rows] == list(range(count))
    assert [row["n"] for row in rows] == [i // 7 + 1 for i in range(count)]


def test_a_journal_on_a_full_disk_is_refused_in_one_line_and_waits_a_moment_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not permitted(tmp_path):
        pytest.skip("mounting a small disk is not permitted here (root can)")
    place = tmp_path / "small"
    with closing(SmallDisk(place, DISK_BYTES)) as disk:
        refused_then_waited(place, disk, monkeypatch)


def refused_then_waited(place: Path, disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Journal(place)
    kept.append([{"kind": "x"}])
    kept.close()
    disk.fill()
    monkeypatch.setattr(journal, "BUSY_S", 0.3)
    with pytest.raises(Unavailable, match="journal.sqlite: .*; free space, repair the disk"):
        Journal(place)
    monkeypatch.setattr(journal, "BUSY_S", 30.0)
    monkeypatch.setattr("time.sleep", lambda seconds: disk.make_room())
    again = Journal(place)
    assert [record["kind"] for record in again.records()] == ["x"]
    again.close()
