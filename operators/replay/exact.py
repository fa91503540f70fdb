"""The exact replay of a recorded job: some tasks and all tasks upstream of them, performed again in this process.

The replay begins at a kept checkpoint, with the code and the settings of that time. Determinants come from the recorded
logs, records from the sources by position, and what the outside world answered from the logs. Nothing is sent, written
or asked, except that readers write to a scratch directory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import PipelineError, Unavailable
from causal.ids import OUTSIDE, ChannelId, TaskIndex
from causal.records.batch import ROWS, Chunk
from causal.snapshot_files import SnapshotFile
from causal.task.cone import ConeReplay, Elements, RecordedEpoch, cone
from causal.task.replay import Replayed, TaskReplay
from causal.task.schedule import ScheduledEvent
from causal.topology import Channel, Topology
from operators.builder.loading import load_archived
from operators.builder.pipeline import Pipeline
from operators.capture.install import install
from operators.engine.operator_chain import OperatorChain
from operators.engine.plan import Plan, plan
from operators.recordings.recording import Recording
from operators.replay.performance import READ_S
from operators.replay.watched import Before, watch
from operators.runtime.image import Image
from operators.source import LONG_AGO_NS, PartitionReader
from operators.stage.disk_state import located


class Replay:
    """The replay of a recording from the kept checkpoint before an epoch.

    A process can replay only one version of a pipeline, because modules are loaded once.

    Args:
        job: the directory of the job, from which sources may read; nothing is written there.
        epoch: the epoch that is to be replayed; all epochs since the checkpoint are replayed before it.
        scratch: an empty directory for what readers write, and for state on disk.
        tasks: the names of the tasks, of subtasks in cells, or of operators; by default, all tasks of the recording.
        pipeline: the code to perform, which must have the same tasks; by default, that of the recording is loaded.
        planned: returns the plan of the pipeline.
        begins: a directory, and files of each task in it, of a state at the beginning of `epoch` from which the replay
            begins instead of a kept checkpoint.

    Attributes:
        tasks: the names of the tasks that are replayed, upstream first.
        chains: task → its chain.
        supplied: called with the channel, position and content of each read of a source.

    Raises:
        PipelineError: the epoch is not recorded, a task does not exist, or a source cannot be read again.
        CorruptData: the recording is damaged.
    """

    def __init__(
        self,
        recording: Recording,
        job: Path,
        epoch: int,
        scratch: Path,
        tasks: Sequence[str] = (),
        pipeline: Pipeline | None = None,
        planned: Callable[[Pipeline, JobConfig], Plan] = plan,
        begins: tuple[Path, Mapping[str, Sequence[SnapshotFile]]] | None = None,
    ) -> None:
        version, start = recording.version_at(epoch), recording.start_of(epoch)
        config = located(replace(version.config, state_directory=""), scratch)
        install(config.hidden_nondeterminism)
        if pipeline is None:
            pipeline = load_archived(recording.archive(version), config.settings, lasting=True)
        self.pipeline = pipeline
        self.plan: Plan = planned(pipeline, config)
        self.topology: Topology = self.plan.topology
        self.supplied: Callable[[ChannelId, int, Elements], None] | None = None
        self._recording = recording
        self._version = version
        directory, snapshot = (recording.directory, recording.snapshot(start)) if begins is None else begins
        cuts: dict[TaskIndex, Cut] = {}
        replays: dict[TaskIndex, TaskReplay] = {}
        self.chains: dict[str, OperatorChain] = {}
        for task in cone(self.topology, self._wanted(tasks)):
            name = str(self.topology.tasks[task].name)
            image = Image(self.plan, task, directory)
            image.load(snapshot[name])
            cuts[task], self.chains[name] = image.cut, image.chain
            replays[task] = TaskReplay(self.topology, task, config, image.chain, image.cut)
        self.tasks: Sequence[str] = list(self.chains)
        self._readers = self._opened(job, scratch, cuts)
        self._indices = {str(self.topology.tasks[task].name): task for task in replays}
        self.cone = ConeReplay(self.topology, replays, self._log, self.read)
        self.cone.verifies = not recording.redacted

    def _wanted(self, names: Sequence[str]) -> list[TaskIndex]:
        recorded, wanted = self._version.tasks, list[TaskIndex]()
        for name in names or recorded:
            task = self.topology.performer(name)
            tasks = [each for each in self.topology.tasks if name in each.operators] if task is None else [task]
            if not tasks or any(each.name not in recorded for each in tasks):
                raise PipelineError(f"there is no task {name!r}; the tasks are {', '.join(recorded)}")
            wanted += [each.index for each in tasks]
        return wanted

    def _opened(self, job: Path, scratch: Path, cuts: Mapping[TaskIndex, Cut]) -> dict[ChannelId, PartitionReader]:
        """Return a reader of each partition that the replayed tasks read, from the checkpoint on."""
        readers: dict[ChannelId, PartitionReader] = {}
        lent: set[str] = set()
        for task, cut in cuts.items():
            for channel in self.topology.inputs(task):
                if channel.source != OUTSIDE:
                    continue
                name, source = self.plan.source_of(channel)
                kept = self._recording.reader(name, channel.partition)
                if kept is not None:
                    readers[channel.id] = kept
                    continue
                if name not in lent and not source.lend(name, job, scratch):
                    raise PipelineError(f"source {name!r} cannot be read by anyone but its job")
                lent.add(name)
                position, _, _ = cut.inputs.get(channel.id, (0, 0, False))
                mark = cut.places.get(channel.id)
                readers[channel.id] = self.plan.reader(channel, scratch, LONG_AGO_NS, position, mark)
        return readers

    @property
    def epoch(self) -> int:
        """The epoch that is replayed next, or is being replayed."""
        return self.cone.epoch

    # Events.

    def begin_epoch(self) -> None:
        """Begin with the next epoch.

        Raises:
            PipelineError: it is not recorded, or belongs to another version.
        """
        self._check_version()
        self.cone.begin_epoch()

    def next(self) -> tuple[str, ScheduledEvent] | None:
        """Return the next event and the name of its task, before it is performed; None once the epoch is over.

        Raises:
            ReplayDivergence: a task cannot perform what its log says.
            Unavailable: the source does not give the elements again.
        """
        following = self.cone.next()
        return None if following is None else (str(self.topology.tasks[following[0]].name), following[1])

    def perform(self) -> Sequence[Replayed]:
        """Perform the event that `next` has returned, and return its output.

        Raises:
            ReplayDivergence, OperatorFailed: as for `ConeReplay.perform`.
        """
        return self.cone.perform()

    def perform_epoch(self) -> None:
        """Perform the next epoch, and verify each channel.

        Raises:
            CausalError: as for `begin_epoch`, `next` and `perform`.
        """
        self._check_version()
        self.cone.perform_epoch()

    def _check_version(self) -> None:
        version = self._recording.version_at(self.epoch)
        if version.number != self._version.number:
            raise PipelineError(f"epoch {self.epoch} was performed by another version; a replay of it begins there")

    # What hooks and questions see.

    def watch_records(self, before_record: Before, before_other: Before | None = None) -> None:
        """Call `before_record` for each record that reaches an operator, immediately before it is processed.

        Args:
            before_other: called for each other event of a key, as for `watch`.
        """
        for task, chain in self.chains.items():
            watch(chain, task, before_record, before_other)

    def watch_rows(self, emitted: Callable[[str, int, Chunk], None]) -> None:
        """Call `emitted(account, position, chunk)` for rows that a sink would write, from that position of its account.

        `rows_in` of `operators.replay.performance` returns them as JSON documents, with the sink of `sink_of`.
        """

        def to_sink(channel: Channel, position: int, chunk: Chunk) -> None:
            if channel.target == OUTSIDE and not channel.carries_requests and chunk.kind == ROWS:
                emitted(self.topology.account(channel), position, chunk)

        self.cone.emitted = to_sink

    def state(self, task: str, operator: str, key: Any) -> dict[str, Any]:
        """Return the state that an operator keeps for a key at this moment, by table."""
        return self.chains[task].inspect(operator, key)

    def task(self, name: str) -> TaskReplay:
        """Return the replay of a task."""
        return self.cone.replays[self.index(name)]

    def index(self, name: str) -> TaskIndex:
        """Return the index of a task that is replayed."""
        return self._indices[name]

    def close(self) -> None:
        """Close the readers."""
        for reader in self._readers.values():
            reader.close()

    # What the replay asks for.

    def _log(self, task: TaskIndex, epoch: int) -> RecordedEpoch:
        return self._recording.log(str(self.topology.tasks[task].name), epoch)

    def read(self, channel: ChannelId, position: int, count: int) -> Elements:
        """Read elements that the job has read: at least one, or the end.

        Raises:
            Unavailable: they cannot be read again.
        """
        reader, due_s = self._readers[channel], time.monotonic() + READ_S
        while True:
            read = reader.read(position, count)
            if read is not None and (len(read.records) or read.ended):
                elements = Elements(read.records, read.ended, read.marks)
                if self.supplied is not None:
                    self.supplied(channel, position, elements)
                return elements
            if time.monotonic() >= due_s:
                name, _ = self.plan.source_of(self.topology.channels[channel])
                raise Unavailable(f"source {name!r}, channel {channel}: position {position} cannot be read again")
            time.sleep(min(0.1, reader.ready_in_s(position)))
