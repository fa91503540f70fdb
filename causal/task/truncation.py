"""Truncation after a complete checkpoint: determinants, frames, segments, marks, what sources hold."""

from __future__ import annotations

from causal.channels.ends import Channels
from causal.cut import Cut
from causal.effects import CommitRows, Effect, RemoveSegments, SourceCompleted, TruncateSink, TruncateStable
from causal.logs.dissemination import Holdings


def truncate(epoch: int, cut: Cut | None, holdings: Holdings, channels: Channels) -> list[Effect]:
    """Forget what came before checkpoint `epoch`, which is complete; rows staged before it become visible.

    Args:
        cut: the position of this task at that barrier, if it is known.

    State: `holdings` and `channels` lose what the checkpoint covers.
    """
    effects: list[Effect] = []
    holdings.truncate(epoch)
    if holdings.flushing:
        effects.append(TruncateStable(epoch))
    gone: set[int] = set()
    for output in channels.downstream.values():
        gone |= output.truncate(epoch)
    if gone:
        effects.append(RemoveSegments(sorted(gone)))
    for sink in channels.sinks.values():
        sink.truncate(epoch)
        if not sink.staging:
            effects.append(TruncateSink(sink.id, epoch))
        elif sink.commit(epoch):
            effects.append(CommitRows(sink.id, epoch))
    if cut is not None:
        effects += [SourceCompleted(c.id, cut.inputs[c.id][0]) for c in channels.partitions if c.id in cut.inputs]
    return effects
