"""An epoch performed again from its recording: the same passes, every sort of difference is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from causal.cut import Cut
from causal.effects import WriteRecording, WriteSnapshot
from causal.errors import CorruptData, ReplayDivergence
from causal.ids import TaskIndex
from causal.records.batch import LISTED, RECORDS, Chunk, encode_records
from causal.records.unreadable import Unreadable
from causal.records.values import encode
from causal.task import recording
from causal.task.performer import DiskEffect
from causal.task.recording import Recorded, Recording, read_recording
from causal.task.rehearsal import rehearse
from tests.simulation.clockwork import MS
from tests.simulation.scenario import Fault, plain
from tests.simulation.shell import SimulatedDisk
from tests.simulation.world import Simulation


class Recorder(Simulation):
    """A run in which every task records its epochs: a source, two tasks, a join that also reads the source, a sink."""

    def __init__(self, seed: int) -> None:
        kinds, killed = ("clock", "random", "call", "timer", "ask"), Fault("kill", 700 * MS, 2, 1)
        super().__init__(
            plain(seed, (1, 2, 1, 1), shortcut=True, records=40, kinds=kinds, checkpoint_ms=60, faults=(killed,))
        )
        self.config = replace(self.config, verify_replay=True)
        self.observer.end = lambda status, reason: None  # type: ignore[method-assign]  # no standby checks any epoch
        self.recordings: dict[tuple[int, int], list[bytes]] = {}
        self.snapshots: dict[tuple[int, int], Sequence[bytes]] = {}

    def run(self) -> None:
        ask = SimulatedDisk.ask

        def kept(disk: SimulatedDisk, effect: DiskEffect) -> None:
            if isinstance(effect, WriteSnapshot):
                self.snapshots[disk._process.membership.task or 0, effect.epoch] = effect.parts
            if isinstance(effect, WriteRecording):
                self.recordings[disk._process.membership.task or 0, effect.epoch] = effect.parts
            else:
                ask(disk, effect)

        with patch.object(SimulatedDisk, "ask", kept):
            super().run()

    def rehearse(self, index: int, epoch: int, **changed: Any) -> None:
        """Perform what led to barrier `epoch` again, with other facts where a test changes some."""
        chain = changed.pop("chain", None) or self.chain(index)
        cut = Cut()
        if epoch > 1:
            before = self.snapshots[index, epoch - 1]
            cut = Cut.unpack(before[0])
            chain.restore(before[1:])
        recorded = read_recording(self.recordings[index, epoch])
        arguments: dict[str, Any] = {
            "recorded": recorded,
            "reached": Cut.unpack(self.snapshots[index, epoch][0]),
            **changed,
        }
        rehearse(self.topology, TaskIndex(index), self.config, chain, cut, **arguments)
        assert chain.snapshot(True).parts() == self.snapshots[index, epoch][1:] or changed

    def chain(self, index: int) -> Any:
        return self.job.chain(index, bytes, 0)


@pytest.fixture(scope="module")
def world() -> Recorder:
    """A whole job with several checkpoints and a failure, so that some epochs were recorded while replaying."""
    recorder = Recorder(7)
    recorder.run()
    assert recorder.observer.durable >= 3 and recorder.applied
    return recorder


def test_every_epoch_of_every_task_can_be_performed_again(world: Recorder) -> None:
    epochs = [(index, epoch) for index, epoch in sorted(world.recordings) if (index, epoch) in world.snapshots]
    assert len(epochs) >= 3 * len(world.topology.tasks)
    for index, epoch in epochs:
        world.rehearse(index, epoch)


def busiest(world: Recorder, wanted: Callable[[Recorded], bool] = lambda recorded: True) -> tuple[int, int]:
    epochs = {where: read_recording(parts) for where, parts in world.recordings.items() if where in world.snapshots}
    return max((where for where in epochs if wanted(epochs[where])), key=lambda where: len(epochs[where].log))


def test_another_output_is_named(world: Recorder) -> None:
    index, epoch = busiest(world)
    reached = Cut.unpack(world.snapshots[index, epoch][0])
    channel, (position, digest) = next(iter(reached.outputs.items()))
    wrong = replace(reached, outputs={**reached.outputs, channel: (position, digest ^ 1)})
    with pytest.raises(ReplayDivergence, match="performed again from its own log, its output .* differed"):
        world.rehearse(index, epoch, reached=wrong)


def test_an_operator_that_asks_for_something_else_is_named(world: Recorder) -> None:
    index, epoch = busiest(world)

    curious = world.chain(index)
    deliver = curious.deliver

    def asking(*arguments: Any) -> Any:
        arguments[-1].now_ns()
        return deliver(*arguments)

    curious.deliver = asking
    with pytest.raises(ReplayDivergence, match="ctx"):
        world.rehearse(index, epoch, chain=curious)


def test_a_recording_that_lacks_elements_is_named(world: Recorder) -> None:
    index, epoch = busiest(world)
    recorded = read_recording(world.recordings[index, epoch])
    with pytest.raises(ReplayDivergence, match="asks for more input than the task had"):
        world.rehearse(index, epoch, recorded=replace(recorded, deliveries=recorded.deliveries[:-1]))


def test_a_recording_gives_back_what_was_delivered() -> None:
    recording = Recording()
    bad = Unreadable("a.txt:3", "it is not JSON", "{", "encoding='latin-1'")
    listed = Chunk(LISTED, 3, [("a", 1), {"b": [2]}, bad])
    packed = Chunk(RECORDS, 1, encode_records([("c", 3)]))
    recording.delivered(1, [listed])
    listed.body.append("changed by user code")
    recording.delivered(0, [packed, packed])
    recorded = read_recording(recording.parts(b"log"))
    assert recorded.log == b"log" and not recorded.unfit
    assert [(d.input, [c.kind for c in d.chunks]) for d in recorded.deliveries] == [(1, [LISTED]), (0, [RECORDS] * 2)]
    assert recorded.deliveries[0].chunks[0].body == [("a", 1), {"b": [2]}, bad]
    assert not read_recording(recording.parts(b"")).deliveries


def test_what_cannot_be_kept_makes_the_epoch_unfit(monkeypatch: pytest.MonkeyPatch) -> None:
    unfit = Recording()
    unfit.delivered(0, [Chunk(LISTED, 1, [object()])])
    unfit.delivered(0, [Chunk(RECORDS, 1, b"x")])
    recorded = read_recording(unfit.parts(b""))
    assert "cannot be recorded" in recorded.unfit and not recorded.deliveries
    monkeypatch.setattr(recording, "RECORDING_BYTES_MAX", 100)
    unfit.delivered(0, [Chunk(RECORDS, 1, bytes(90))])
    unfit.delivered(0, [Chunk(RECORDS, 1, bytes(90))])
    assert "more than 100 bytes" in read_recording(unfit.parts(b"")).unfit
    unfit.delivered(0, [Chunk(RECORDS, 1, b"x")])
    assert not read_recording(unfit.parts(b"")).unfit


@pytest.mark.parametrize(
    "parts",
    [[], [b"\xc1"], [encode([1])], [encode(["", [[0, True]]]), b""], [encode(["", [[0, False]]]), b"", b"junk"]],
)
def test_a_damaged_recording_is_refused(parts: list[bytes]) -> None:
    with pytest.raises(CorruptData, match="recording"):
        read_recording(parts)
