"""Performs the effects of tasks in memory, which sockets, disk and stores perform in a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from causal.effects import (
    Effect,
    OpenSink,
    Phase,
    ReadSegment,
    ReadSource,
    RemoveSegments,
    Reply,
    Send,
    SendRequests,
    SnapshotReady,
    SourceCompleted,
    SpillSegment,
    TruncateSink,
    WithdrawRows,
    WriteBundle,
    WriteSnapshot,
)
from causal.errors import DeterminantsLost
from causal.events import ResponseReceived, SegmentRead, SegmentWritten, SinkOpened, SnapshotWritten
from operators.kinds.process.outside_calls import askers_of
from operators.testing.process import Process

if TYPE_CHECKING:
    from operators.testing.world import World


def perform(world: World, process: Process, effect: Effect) -> None:
    """Perform an effect of `process`."""
    _PERFORMERS[type(effect)](world, process, effect)


def _send(world: World, process: Process, effect: Send) -> None:
    world.transmit(process, effect.target, process.dialled[effect.target], effect.parts)


def _reply(world: World, process: Process, effect: Reply) -> None:
    target, incarnation = map(int, effect.link.split(b"/"))
    world.transmit(process, target, incarnation, effect.parts)


def _open_sink(world: World, process: Process, effect: OpenSink) -> None:
    world.handle(process, SinkOpened(effect.channel, world.stores[effect.channel].open(process.incarnation)))


def _write_bundle(world: World, process: Process, effect: WriteBundle) -> None:
    world.stores[effect.channel].write(effect.bundle)


def _truncate_sink(world: World, process: Process, effect: TruncateSink) -> None:
    world.stores[effect.channel].truncate(effect.epoch)


def _withdraw(world: World, process: Process, effect: WithdrawRows) -> None:
    state = world.stores[effect.channel].withdraw(effect.mark)
    world.handle(process, SinkOpened(effect.channel, state))


def _read_source(world: World, process: Process, effect: ReadSource) -> None:
    world.read(process, effect.channel, effect.position, effect.count_max)


def _write_snapshot(world: World, process: Process, effect: WriteSnapshot) -> None:
    world.snapshots[process.index, effect.epoch] = (effect.parts, process.chain.frozen)
    file = (str(effect.epoch), sum(map(len, effect.parts)), "")
    world.later.append(lambda: world.handle(process, SnapshotWritten(effect.epoch, file)))


def _snapshot_ready(world: World, process: Process, effect: SnapshotReady) -> None:
    world.acknowledged(process.index, effect.epoch, effect.files)


def _spill(world: World, process: Process, effect: SpillSegment) -> None:
    entries = effect.entries
    process.segments[effect.segment] = {entry.first: bytes(entry.payload or b"") for entry in entries}
    count = entries[-1].next - entries[0].first
    written = SegmentWritten(effect.channel, effect.segment, entries[0].first, count)
    world.later.append(lambda: world.handle(process, written))


def _read_segment(world: World, process: Process, effect: ReadSegment) -> None:
    read = SegmentRead(effect.channel, effect.segment, process.segments[effect.segment])
    world.later.append(lambda: world.handle(process, read))


def _remove_segments(world: World, process: Process, effect: RemoveSegments) -> None:
    for segment in effect.segments:
        process.segments.pop(segment, None)


def _ask(world: World, process: Process, effect: SendRequests) -> None:
    """Call the functions at once; responses come in any order, and there are no time-outs, which are of real time."""
    askers = askers_of(process.chain)
    for request in effect.requests:
        asker = askers[request.operator]
        well, body = asker.perform(request.body)
        for _ in range(asker.retries):
            if well:
                break
            well, body = asker.perform(request.body)
        answered = ResponseReceived(request.operator, request.number, body)
        place = world.chance.randint(0, len(world.later))
        world.later.insert(place, lambda answered=answered: world.handle(process, answered))  # type: ignore[misc]


def _phase(world: World, process: Process, effect: Phase) -> None:
    if effect.name == "lost":
        raise DeterminantsLost(
            f"{process.protocol.name}: determinants are lost, and the kit has no rollback; use full sharing depth"
        )


def _nothing(world: World, process: Process, effect: Effect) -> None:
    """Do nothing: a partition keeps everything."""


_PERFORMERS: dict[type, Callable[[World, Process, Any], None]] = {
    Send: _send,
    Reply: _reply,
    OpenSink: _open_sink,
    WriteBundle: _write_bundle,
    TruncateSink: _truncate_sink,
    WithdrawRows: _withdraw,
    ReadSource: _read_source,
    SourceCompleted: _nothing,
    WriteSnapshot: _write_snapshot,
    SnapshotReady: _snapshot_ready,
    SpillSegment: _spill,
    ReadSegment: _read_segment,
    RemoveSegments: _remove_segments,
    SendRequests: _ask,
    Phase: _phase,
}
