"""The recorder alone: what it enters, keeps and drops, and that one killed at any write leaves nothing half usable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import PipelineError, Unavailable
from causal.recorded_files import DIRECTORY, EpochLog, FailureEntry, log_name
from causal.recording_window import Window
from causal.snapshot_files import SnapshotFile, written_name
from causal.storage.files import write_parts
from causal.storage.recording_places import LocalPlace
from causal.topology import Topology
from operators.recordings.recording import EXCEPTION, open_recording
from operators.recordings.recording import Recording as Read
from standby.blueprint import Blueprint
from standby.storage import recorder
from standby.storage.recorded_sources import RecordedSources
from standby.storage.recorder import Recording

SECOND_NS = 1_000_000_000
TASKS = ("count/0", "out/0")
WIDE = Window(1000, 10**9)
"""A window that keeps a checkpoint each second."""


class Died(BaseException):
    """The end of the process."""


class MortalPlace(LocalPlace):
    """A place whose process dies at one of its writes."""

    def __init__(self, job: Path, writes_max: int) -> None:
        super().__init__(job)
        self.left = writes_max
        create, remove, keep = self.objects.create, self.objects.remove, self.keep

        def counted_create(name: str, data: bytes | memoryview, durable: bool = True) -> bool:
            self._count()
            return create(name, data, durable)

        def counted_remove(names: Iterable[str]) -> None:
            for name in names:
                self._count()
                remove([name])

        def counted_keep(name: str) -> None:
            self._count()
            keep(name)

        self.objects.create = counted_create  # type: ignore[method-assign]
        self.objects.remove = counted_remove  # type: ignore[method-assign]
        self.keep = counted_keep  # type: ignore[method-assign]

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Died


class Job:
    """A job directory, to which the test writes what tasks and supervisor write."""

    def __init__(self, path: Path, window: Window = WIDE, tasks: tuple[str, ...] = TASKS) -> None:
        self.path = path
        self.config = JobConfig("r", "job", "/p.py", record="1h", code="c0de")
        self.window = window
        self.tasks = tasks
        self.incarnations = dict.fromkeys(tasks, 1)
        self.files: dict[str, tuple[SnapshotFile, ...]] = {}
        self.epoch = self.skipped = 0
        (path / "code").mkdir(exist_ok=True)
        (path / "code" / "c0de.zip").write_bytes(b"code")
        self.config.save(path)
        self.blueprint = Blueprint(Topology((), ()))
        self.begin()

    def begin(self, writes_max: int = 1 << 60) -> None:
        """Begin a supervisor's life."""
        place = MortalPlace(self.path, writes_max)
        sources = RecordedSources(self.path, self.config, self.blueprint)
        self.recording = Recording(place, self.config, self.tasks, sources, self.window)
        self.recording.completed(self.epoch, self.files, self.now_ns, ())

    @property
    def now_ns(self) -> int:
        return (100 + self.epoch - self.skipped) * SECOND_NS

    def write_logs(self, size: int = 10, without: str = "") -> None:
        """Write what the tasks write until the next checkpoint is complete."""
        self.epoch += 1
        for task, incarnation in self.incarnations.items():
            if task != without:
                log = EpochLog(f"{task} {self.epoch - 1} {incarnation}".encode() * size, Cut(self.epoch), incarnation)
                name = log_name(task, self.epoch - 1, incarnation)
                write_parts(self.path / DIRECTORY / name, log.parts(), durable=False)
            path = written_name(task, self.epoch, incarnation)
            self.files[task] = ((path, *write_parts(self.path / path, [b"state"], durable=False)),)

    def complete(self, *failures: FailureEntry) -> None:
        self.recording.completed(self.epoch, dict(self.files), self.now_ns, failures)

    def end(self, failure: str = "", **ahead: int) -> None:
        """Write what the tasks write when their processes end; `ahead` has the number of epochs each is ahead."""
        for task, incarnation in self.incarnations.items():
            last = self.epoch + ahead.get(task.partition("/")[0], 0)
            for epoch in range(self.epoch, last):
                log = EpochLog(f"{task} {epoch}".encode(), Cut(epoch + 1))
                write_parts(self.path / DIRECTORY / log_name(task, epoch, incarnation), log.parts(), durable=False)
            log = EpochLog(f"{task} {last} ended".encode(), Cut(last), 0, failure, self.now_ns + 5)
            name = log_name(task, last, incarnation, unfinished=True)
            write_parts(self.path / DIRECTORY / name, log.parts(), durable=False)

    def pass_epochs(self, count: int, size: int = 10) -> None:
        for _ in range(count):
            self.write_logs(size)
            self.complete()

    def read(self) -> Read:
        recording = open_recording(self.path)
        for epoch in (epoch for stretch in recording.stretches() for epoch in stretch):
            for task in recording.version_at(epoch).tasks:
                log = recording.log(task, epoch)
                assert log.log.startswith(f"{task} {epoch} ".encode()) and log.reached.epoch == epoch + 1
            start = recording.start_of(epoch)
            for listed in recording.snapshot(start).values():
                assert all((recording.directory / path).exists() for path, _, _ in listed)
        return recording

    def names(self) -> set[str]:
        root = self.path / DIRECTORY
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def shown(recording: Read) -> tuple[range, dict[tuple[str, int], bytes]] | None:
    tail = recording.tail()
    return None if tail is None else (tail.epochs, {place: log.log for place, log in tail.logs.items()})


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_epochs_are_recorded_from_the_beginning_of_the_job(job: Job) -> None:
    with pytest.raises(PipelineError, match="job has no epoch yet; it has one after the next checkpoint"):
        open_recording(job.path).log("count/0", 0)
    job.pass_epochs(3)
    recording = job.read()
    assert recording.epochs() == range(3) and recording.checkpoints() == [0, 1, 2, 3]
    assert recording.snapshot(0) == {"count/0": (), "out/0": ()}
    assert [recording.time_ns(epoch) for epoch in range(4)] == [(100 + epoch) * SECOND_NS for epoch in range(4)]
    assert recording.epoch_at(int(101.5 * SECOND_NS)) == 1
    (version,) = recording.versions
    assert (version.first, version.last, version.tasks) == (0, 2, TASKS)
    assert {**asdict(version.config)} == asdict(job.config)


def test_what_is_not_recorded_is_refused_with_what_is(job: Job) -> None:
    job.pass_epochs(3)
    recording = job.read()
    there = r"it has epochs 0 to 2 \(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d to .*\)$"
    for refused, line in (
        (lambda: recording.log("count/0", 3), "no epoch 3; "),
        (lambda: recording.snapshot(9), "no checkpoint 9; "),
        (lambda: recording.start_of(-1), "no epoch -1; "),
        (lambda: recording.time_ns(4), "no checkpoint 4; "),
        (lambda: recording.epoch_at(5), "nothing of 1970-.*; "),
    ):
        with pytest.raises(PipelineError, match=f"^the recording of job contains {line}{there}"):
            refused()
    with pytest.raises(PipelineError, match="there was no task x/0 in epoch 1; there were count/0, out/0$"):
        recording.log("x/0", 1)
    with pytest.raises(PipelineError, match="has no recording; record it with: causal run /p.py --resume --record$"):
        (job.path / "other").mkdir()
        job.config.save(job.path / "other")
        open_recording(job.path / "other")


def test_the_incarnation_counts_whose_snapshot_the_checkpoint_names(job: Job) -> None:
    job.pass_epochs(1)
    job.write_logs()
    job.epoch -= 1
    job.incarnations["count/0"] = 2
    job.write_logs()
    job.complete(FailureEntry("count/0", 2, job.now_ns, "standby", 7, ""))
    job.pass_epochs(2)
    recording = job.read()
    assert recording.log("count/0", 1).log.startswith(b"count/0 1 2")
    (failure,) = recording.failures()
    assert (failure.task, failure.epoch, failure.log_bytes, failure.replayed_elements) == ("count/0", 2, 2, 7)
    assert log_name("count/0", 1, 1) not in job.names()  # the log of the incarnation that died is of no use


def test_a_failure_is_entered_once(job: Job) -> None:
    failure = FailureEntry("out/0", 2, job.now_ns, "cold", -1, "")
    for _ in range(3):
        job.write_logs()
        job.complete(failure)
    job.begin()
    job.write_logs()
    job.complete(failure)
    assert len(job.read().failures()) == 1


def test_an_epoch_without_a_log_ends_a_stretch(job: Job) -> None:
    job.pass_epochs(2)
    job.write_logs(without="out/0")
    job.complete()
    job.pass_epochs(2)
    recording = job.read()
    assert list(recording.stretches()) == [range(2), range(3, 5)] and recording.epochs() == range(3, 5)
    with pytest.raises(PipelineError, match="no epoch 2; it has epochs 0 to 1 .* and epochs 3 to 4 "):
        recording.log("count/0", 2)


def test_the_window_drops_whole_intervals(tmp_path: Path) -> None:
    job = Job(tmp_path, Window(5, 10**9))
    job.pass_epochs(20)
    recording = job.read()
    assert recording.epochs() == range(14, 20)
    assert not any(f"e{epoch:08d}" in name for name in job.names() for epoch in range(13))
    assert sum(name.startswith("checkpoints/") for name in job.names()) == 2 * len(recording.checkpoints())


def test_the_window_is_bounded_in_bytes(tmp_path: Path) -> None:
    job = Job(tmp_path, Window(1000, 400_000))
    for _ in range(60):
        job.pass_epochs(1, size=2000)
        used = sum((tmp_path / DIRECTORY / name).stat().st_size for name in job.names())
        assert used <= 400_000 and job.recording.bytes <= 400_000
    recording = job.read()
    assert 3 < len(recording.epochs()) < 60 and recording.epochs().stop == 60


def test_a_checkpoint_larger_than_the_window_leaves_nothing(tmp_path: Path) -> None:
    job = Job(tmp_path, Window(1000, 10_000))
    job.pass_epochs(5)
    assert not any(name.startswith("checkpoints/") for name in job.names())


def test_a_day_of_epochs_has_few_files(tmp_path: Path) -> None:
    job = Job(tmp_path, Window(20_000, 10**9))
    job.pass_epochs(100)
    recording = job.read()
    assert recording.epochs() == range(100) and recording.checkpoints() == [0, 20, 40, 60, 80, 100]
    index = [name for name in job.names() if name.startswith("index/")]
    assert len(index) == 1 + 5 + 1 and sum(name.startswith("logs/") for name in job.names()) == 5 * 2


def test_large_logs_stay_in_files_of_their_own(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "PACK_BYTES_MAX", 10)
    job.pass_epochs(3)
    assert job.read().epochs() == range(3)
    assert log_name("count/0", 0, 1) in job.names()


def test_a_new_version_begins_with_a_checkpoint_of_its_own(job: Job) -> None:
    job.pass_epochs(2)
    job.config = replace(job.config, code="c1de")
    (job.path / "code" / "c1de.zip").write_bytes(b"other")
    job.tasks, job.incarnations = ("count/0", "count/1", "out/0"), {"count/0": 9, "count/1": 9, "out/0": 9}
    job.epoch -= 1
    job.write_logs()  # the files with which the version begins
    job.begin()
    job.pass_epochs(2)
    recording = job.read()
    assert recording.epochs() == range(4)
    assert [(each.number, each.first, each.last) for each in recording.versions] == [(1, 0, 1), (2, 2, 3)]
    assert "e00000002-i9" in recording.snapshot(2)["count/0"][0][0] and len(recording.snapshot(2)) == 3
    assert recording.version_at(1).config.code == "c0de" and recording.version_at(2).config.code == "c1de"
    assert {"code/c0de.zip", "code/c1de.zip"} <= job.names()


def test_a_version_that_has_left_the_window_leaves_its_archive(tmp_path: Path) -> None:
    job = Job(tmp_path, Window(3, 10**9))
    job.pass_epochs(2)
    job.config = replace(job.config, code="c1de")
    (job.path / "code" / "c1de.zip").write_bytes(b"other")
    job.begin()
    job.pass_epochs(10)
    assert "code/c0de.zip" not in job.names() and [each.number for each in job.read().versions] == [2]


def test_after_a_rollback_the_withdrawn_epochs_can_still_be_replayed(job: Job) -> None:
    job.pass_epochs(3)
    job.config = replace(job.config, first_incarnation=1001)
    job.epoch += 1000
    job.skipped = 1000
    job.begin()
    job.pass_epochs(2)
    assert list(job.read().stretches()) == [range(3), range(1003, 1005)]


@pytest.mark.parametrize("window", [Window(3, 10**9), Window(2000, 10**9)], ids=["short", "few"])
def test_a_recorder_that_is_killed_at_any_write_leaves_nothing_half_usable(tmp_path: Path, window: Window) -> None:
    writes = 0
    while True:
        (tmp_path / str(writes)).mkdir()
        job = Job(tmp_path / str(writes), window)
        job.pass_epochs(3)
        try:
            job.begin(writes)
            job.pass_epochs(2)
            break
        except Died:
            recording = job.read()
            assert recording.epochs().stop in (job.epoch - 1, job.epoch)
        job.begin()
        assert job.read().epochs().stop == job.epoch
        job.pass_epochs(1)
        whole = job.read()
        assert whole.epochs().stop == job.epoch and len(whole.stretches()) == 1
        job.begin()
        logs = {name for name in job.names() if name.startswith(("logs/", "checkpoints/"))}
        job.recording._remove_remains()
        assert logs == {name for name in job.names() if name.startswith(("logs/", "checkpoints/"))}
        writes += 1
    assert writes > 8


def test_a_place_that_is_unavailable_is_named_and_the_recording_begins_again(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.pass_epochs(2)
    job.write_logs()
    with monkeypatch.context() as broken:
        broken.setattr(LocalPlace, "size", lambda self, name: (_ for _ in ()).throw(Unavailable("no disk")))
        with pytest.raises(Unavailable, match="no disk"):
            job.complete()
    job.pass_epochs(2)
    assert list(job.read().stretches()) == [range(2), range(3 + 1, 5)]


def test_what_the_tasks_did_until_the_job_ended_follows_on_the_last_epoch(job: Job) -> None:
    job.pass_epochs(2)
    job.end(count=1)
    recording = job.read()
    assert recording.epochs() == range(2) and recording.replayable() == range(4) == recording.run_of(1)
    logs = {("count/0", 2): b"count/0 2", ("count/0", 3): b"count/0 3 ended", ("out/0", 2): b"out/0 2 ended"}
    assert shown(recording) == (range(2, 4), logs)
    assert recording.log("out/0", 2).log == b"out/0 2 ended" and recording.version_at(3).number == 1
    assert recording.epoch_at(job.now_ns + 3) == 2 and not recording.failures()
    with pytest.raises(PipelineError, match="job did not finish epoch 2, and this needs a finished one"):
        recording.entry(2)
    with pytest.raises(PipelineError, match="out/0 has no log of epoch 3, which the job did not finish"):
        recording.log("out/0", 3)
    with pytest.raises(PipelineError, match=r"no epoch 4; it has epochs 0 to 1 .*, and the unfinished epoch 2$"):
        recording.log("out/0", 4)


def test_a_job_that_fails_before_its_first_checkpoint_has_a_tail(job: Job) -> None:
    job.end("KeyError")
    recording = job.read()
    assert not recording.epochs() and recording.replayable() == range(1) and recording.start_of(0) == 0
    assert [(each.task, each.epoch, each.mode, each.cause) for each in recording.failures()] == [
        (task, 0, EXCEPTION, "KeyError") for task in TASKS
    ]
    with pytest.raises(PipelineError, match="the recording of job has only the unfinished epoch 0$"):
        recording.log("out/0", 1)


def test_a_tail_without_the_log_of_each_task_is_not_there(job: Job) -> None:
    job.pass_epochs(2)
    job.end(count=1)
    logs = [path for path in (job.path / DIRECTORY / "logs").rglob("*.log") if path.name.startswith(("u", "e00000002"))]
    assert len(logs) == 3
    for path in logs:
        content = path.read_bytes()
        for damaged in (None, content[:-3], b""):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            assert job.read().tail() is None
        path.write_bytes(content)
        assert job.read().tail() is not None


def test_a_job_that_is_resumed_or_changed_has_no_tail_until_it_ends_again(job: Job) -> None:
    job.pass_epochs(2)
    job.end()
    job.begin()
    assert job.read().tail() is None
    job.end()
    assert job.read().tail() is not None
    job.config = replace(job.config, first_incarnation=7)
    job.begin()
    job.end()  # a process of the version before ends late
    assert job.read().tail() is None
    job.incarnations = dict.fromkeys(TASKS, 7)
    job.end()
    assert shown(job.read()) == (range(2, 3), {(task, 2): f"{task} 2 ended".encode() for task in TASKS})
