"""Finds the epoch and the task that wrote a row of a sink, from the positions in a recording."""

from __future__ import annotations

from causal.errors import PipelineError
from causal.ids import OUTSIDE
from operators.builder.loading import load_archived
from operators.engine.plan import plan
from operators.recordings.recording import Recording


def writer_of(recording: Recording, account: str, position: int) -> tuple[int, str, int]:
    """Return the epoch in which a row was written, the task that wrote it, and the channel to the sink.

    Args:
        account: the account of a task of a sink, as `out/1`.
        position: the number of rows of the account before it.

    Raises:
        PipelineError: there is no such account, or the row was written before or after the recorded epochs.
    """
    epochs = recording.epochs()
    version = recording.version_at(epochs.start)
    topology = plan(load_archived(recording.archive(version), version.config.settings), version.config).topology
    accounts = {
        topology.account(channel): (channel.id, str(topology.tasks[channel.source].name))
        for channel in topology.channels
        if channel.target == OUTSIDE and not channel.carries_requests
    }
    if account not in accounts:
        raise PipelineError(f"no sink writes as {account!r}; rows are written as {', '.join(accounts)}")
    channel, task = accounts[account]
    last = min(epochs.stop - 1, version.last)
    low, high = epochs.start, last + 1
    while low < high:
        middle = (low + high) // 2
        position_then, _ = recording.log(task, middle).reached.outputs[channel]
        low, high = (middle + 1, high) if position_then <= position else (low, middle)
    if low > last:
        there, _ = recording.log(task, last).reached.outputs[channel]
        raise PipelineError(f"{account} has only {there} rows in the recorded epochs; positions begin at 0")
    return low, task, channel
