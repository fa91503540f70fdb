"""Finds the epoch and the task that wrote a row, in all versions of a recording; each is loaded in a fork."""

from __future__ import annotations

from functools import partial

from causal.errors import PipelineError
from causal.records.values import decode, encode
from operators.recordings.recording import Recording
from operators.replay.separately import separately
from operators.replay.written_rows import BEFORE, Writer, writer_of

LOOK_UP_S = 60.0


def located(recording: Recording, account: str, position: int) -> tuple[int, str, int]:
    """Return the epoch in which a row was written, its task, and its channel.

    Args:
        account: the account of a task of a sink, as `out/1`, or the name of a sink that has only one.
        position: the number of rows of the account before it.

    Raises:
        PipelineError: there is no such account, or the row is not one of the recorded epochs.
        CorruptData: the recording is damaged.
    """
    recorded = recording.replayable()
    if not recorded:
        recording.version_at(recorded.start)  # raises: nothing is recorded yet
    stop, wrong, there = recorded.start, "", 0
    while stop < recorded.stop:
        run = range(stop, recording.run_of(stop).stop)
        stop = run.stop
        try:
            writer = _looked_up(recording, run, account, position)
        except PipelineError as problem:
            wrong = str(problem)
            continue
        if writer.epoch >= 0:
            return writer.epoch, writer.task, writer.channel
        if writer.epoch == BEFORE:
            raise PipelineError(
                f"{account}:{position} was written before the recorded epochs, which begin at row {writer.first}"
            )
        there = writer.stop
    if not there and wrong:
        raise PipelineError(wrong)
    also = _withdrawn(recording, account, position)
    raise PipelineError(f"{account} has only {there} rows in the recorded epochs; positions begin at 0{also}")


def _looked_up(recording: Recording, run: range, account: str, position: int) -> Writer:
    """Look for a row in epochs of one version.

    Raises:
        PipelineError: there is no such account.
    """
    act = partial(writer_of, recording, run, account, position)
    return Writer(*decode(separately(lambda: encode(list(act())), LOOK_UP_S)))


def _withdrawn(recording: Recording, account: str, position: int) -> str:
    """Return a clause about the row if it was written in epochs that do not lead to the present; otherwise none."""
    for stretch in reversed(recording.stretches()[:-1]):
        for first in (each.first for each in recording.versions if each.first in stretch and each.last >= each.first):
            try:
                writer = _looked_up(recording, range(first, recording.run_of(first).stop), account, position)
            except PipelineError:
                continue
            if writer.epoch >= 0:
                return (
                    f"; such a row of epoch {writer.epoch} does not lead to the present, because a rollback has "
                    f"withdrawn epochs {stretch.start} to {stretch.stop - 1}, or the recording began again"
                )
    return ""
