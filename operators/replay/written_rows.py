"""Finds the epoch and the task that wrote a row of a sink, from the positions in a recording."""

from __future__ import annotations

from typing import NamedTuple

from causal.cut import Cut
from causal.errors import PipelineError
from causal.ids import OUTSIDE
from causal.storage.files import read_parts
from operators.builder.loading import load_archived
from operators.engine.plan import plan
from operators.recordings.recording import Recording


class Writer(NamedTuple):
    """The place where a row was written.

    Attributes:
        epoch: the epoch; -1 if it was written before these epochs, and -2 if after them.
        task: the task that wrote it.
        channel: the channel to the sink.
        first, stop: the rows of the account that the epochs wrote.
    """

    epoch: int
    task: str
    channel: int
    first: int
    stop: int


BEFORE, AFTER = -1, -2


def writer_of(recording: Recording, epochs: range, account: str, position: int) -> Writer:
    """Return the epoch in which a row was written, the task that wrote it, and the channel to the sink.

    Args:
        epochs: consecutive epochs of one version.
        account: the account of a task of a sink, as `out/1`, or the name of a sink that has only one.
        position: the number of rows of the account before it.

    Raises:
        PipelineError: there is no such account.
    """
    version = recording.version_at(epochs.start)
    topology = plan(load_archived(recording.archive(version), version.config.settings), version.config).topology
    accounts = {
        topology.account(channel): (channel.id, str(topology.tasks[channel.source].name))
        for channel in topology.channels
        if channel.target == OUTSIDE
        and not channel.carries_requests
        and topology.tasks[channel.source].name in version.tasks  # a bundle does not have all of them
    }
    named = [each for each in accounts if account in (each, each.rpartition("/")[0])]
    if len(named) != 1:
        which = f"{account!r} has several tasks" if named else f"no sink writes as {account!r}"
        raise PipelineError(f"{which}; rows are written as {', '.join(named or accounts)}")
    channel, task = accounts[named[0]]
    ends = _Ends(recording, task, channel)
    first, stop = ends.before(epochs.start), ends.after(epochs.stop - 1)
    if not first <= position < stop:
        return Writer(BEFORE if position < first else AFTER, task, channel, first, stop)
    low, high = epochs.start, epochs.stop - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if ends.after(middle) <= position else (low, middle)
    return Writer(low, task, channel, first, stop)


class _Ends:
    """The number of rows that an account had at the ends of epochs."""

    def __init__(self, recording: Recording, task: str, channel: int) -> None:
        self._recording = recording
        self._task = task
        self._channel = channel

    def before(self, epoch: int) -> int:
        """Return the number at the kept checkpoint before an epoch."""
        files = self._recording.snapshot(self._recording.start_of(epoch))[self._task]
        if not files:
            return 0
        path, _, digest = files[-1]
        cut, *_ = read_parts(self._recording.directory / path, digest)
        return Cut.unpack(cut).outputs[self._channel][0]

    def after(self, epoch: int) -> int:
        """Return the number after an epoch; a task that ended before it has written no more."""
        tail = self._recording.tail()
        if tail is not None and epoch in tail.epochs:
            epoch = min(epoch, tail.ends[self._task].epoch)
        return self._recording.log(self._task, epoch).reached.outputs[self._channel][0]
