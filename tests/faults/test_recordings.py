"""The recording of a real job: every epoch is there with its logs, whatever died, and checkpoints confirm them."""

from __future__ import annotations

from collections.abc import Callable

from causal.cut import Cut
from causal.storage.files import read_parts
from operators.recordings.recording import Recording, open_recording
from tests.faults.conftest import HeldChain

KILLED = "score/0"


def assert_whole(recording: Recording) -> None:
    """Assert that each epoch has the log of each task, and that logs and checkpoints state the same positions."""
    epochs = recording.epochs()
    for epoch in epochs:
        tasks = recording.version_at(epoch).tasks
        reached = {task: recording.log(task, epoch).reached for task in tasks}
        assert {cut.epoch for cut in reached.values()} == {epoch + 1}
        assert recording.time_ns(epoch) <= recording.time_ns(epoch + 1)
        assert recording.start_of(epoch) <= epoch
        if epoch + 1 in recording.checkpoints():
            files = recording.snapshot(epoch + 1)
            cuts = {t: read_parts(recording.directory / f[-1][0], f[-1][2])[0] for t, f in files.items()}
            assert {task: Cut.unpack(cut) for task, cut in cuts.items()} == reached
    (version,) = recording.versions
    assert recording.archive(version).pipeline.source
    assert sum(len(recording.log(task, epoch).log) for epoch in epochs for task in version.tasks) > 100


def test_every_epoch_is_recorded_although_a_task_dies(start_chain: Callable[..., HeldChain]) -> None:
    chain = start_chain("--record", "20s,1GB", checkpoint_interval_s=0.1)
    before = chain.until_checkpoint(3)
    chain.job.replace(KILLED)
    chain.until_checkpoint(before + 6)
    chain.finish_exactly()
    recording = open_recording(chain.job.state)
    assert recording.epochs().start == 0 and len(recording.epochs()) > before + 6
    assert recording.stretches() == [recording.epochs()] and len(recording.checkpoints()) > before
    assert_whole(recording)
    (failure,) = recording.failures()
    assert failure.task == KILLED and failure.incarnation == 2
    log = recording.log(KILLED, failure.epoch)
    assert failure.log_bytes == log.replayed <= len(log.log)
    assert recording.epoch_at(failure.at_ns) in (failure.epoch, failure.epoch - 1)
