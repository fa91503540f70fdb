"""`causal run new.py --input JOB`: what a new job reads of another job's recording, and the state with which it begins.

The recorded job may run, and is not changed.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from causal.config import JobConfig
from causal.cut import Mark
from causal.errors import PipelineError
from causal.ids import OUTSIDE
from causal.recorded_files import INPUT
from deploy.jobs.lookup import find_job, holds_job
from deploy.jobs.versions import warn
from deploy.replaying.replay_attempts import time_of
from deploy.savepoints import savepoint_store, stored_savepoints
from deploy.savepoints.recorded_checkpoint import checkpoint_in, initial, marks_of, positions_after, positions_of
from deploy.savepoints.upgrading import Beginning, beginning
from operators.builder.loading import version_of_job
from operators.builder.pipeline_settings import PARTITIONS
from operators.engine.plan import Plan, plan
from operators.engine.recorded_input import Bounds, RecordedInput, RecordedSource
from operators.recordings.recording import Recording, open_recording, shown_time
from operators.replay.input_steps import Positions
from operators.replay.performance import Checkpoint
from operators.runtime.unchanged_state import converted


@dataclass(slots=True)
class Backtest:
    """A recorded job as the input of a new one.

    Attributes:
        job: the directory of the recorded job.
        config: the settings of the version that performed the last epoch.
        first, last: the recorded epochs that are read.
        checkpoint: the kept checkpoint at which reading begins; None at a savepoint.
        stateful: whether the new job begins with the state of the checkpoint.
        savepoint: the directory of the savepoint with which the job begins; empty if there is none.
        stops: the positions after the last epoch.
        places: the locations of the recorded job's rows.
        lent: a directory that receives what sources lend, for checks before the directory of the new job is emptied.
    """

    job: Path
    config: JobConfig
    first: int
    last: int
    checkpoint: Checkpoint | None
    stateful: bool
    savepoint: str
    stops: Positions
    places: frozenset[str]
    lent: Path
    starts: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def partitions(self) -> dict[str, str]:
        """The settings that fix numbers of partitions, as recorded."""
        return {name: value for name, value in self.config.settings.items() if name.startswith(PARTITIONS)}

    def check_apart(self, directory: Path) -> None:
        """Raise `PipelineError` if the new job would replace the recorded one."""
        if directory.resolve() == self.job:
            raise PipelineError(f"{directory} is the directory of the recorded job; choose another with --state-dir")

    def read_by(self, config: JobConfig) -> JobConfig:
        """Return the settings of a job whose sources read this input."""
        return replace(config, input=str(self.job), settings={**self.partitions, **config.settings})

    def _check(self, config: JobConfig, planned: Plan) -> None:
        """Refuse a job that would disturb the recorded one, or that reads what is not recorded.

        Raises:
            PipelineError: the line says what to change.
        """
        if config.guarantee == "none":
            raise PipelineError("--input: guarantee none has no checkpoints, and so no end of the recorded input")
        if config.listen or config.on:
            raise PipelineError("--input: a backtest runs on one host; leave out --listen and --on")
        for task, place in planned.sink_places().items():
            if place in self.places:
                raise PipelineError(f"{task}: the recorded job writes its rows to {place}; write to another place")
        counts: dict[str, int] = {}
        for source, _ in self.stops:
            counts[source] = counts.get(source, 0) + 1
        for node in planned.operators:
            if node.kind != "source":
                continue
            if node.name not in counts:
                raise PipelineError(
                    f"{node.where}: the recorded job has no source {node.name!r}; its sources are {', '.join(counts)}"
                )
            if node.subject.partitions != counts[node.name]:
                raise PipelineError(
                    f"{node.where}: source {node.name!r} has {node.subject.partitions} partitions and had "
                    f"{counts[node.name]} in epoch {self.last}; use the same number"
                )

    def beginning(self, directory: Path, config: JobConfig, planned: Plan, allow_dropped: bool) -> Beginning | None:
        """Return what the job begins with; None if it begins without state, at the first elements.

        Raises:
            PipelineError: the state does not fit, or was written after the last epoch.
            CorruptData: the recording or the savepoint is damaged.
        """
        self._check(config, planned)
        begins: Beginning | None
        if self.savepoint:
            begins = beginning(Path(self.savepoint), directory, config, planned, allow_dropped, keep_sinks=False)
        elif self.checkpoint is None or not self.checkpoint.epoch:
            begins = None
        else:
            begins = self._of_checkpoint(self.checkpoint, config, planned, allow_dropped)
        if begins is not None:
            self.starts = dict(begins.rescaling.positions())
        self._lend(planned, self.lent)
        places = {} if begins is None else begins.rescaling.places()
        planned.check_readable(places, self.lent)
        return begins

    def _lend(self, planned: Plan, directory: Path) -> None:
        """Copy or link what the sources need to a job directory, with the bounds of their input.

        Raises:
            PipelineError: only the recorded job can read a source, or the savepoint is after the end of the input.
        """
        for partition, (stop, ends) in self.stops.items():
            if self.starts.get(partition, 0) > stop + ends:
                raise PipelineError(
                    f"source {partition[0]!r}, partition {partition[1]}: the savepoint continues at position "
                    f"{self.starts[partition]}, but epoch {self.last} of the recording ends at {stop}; use an earlier "
                    "savepoint, or a later --to"
                )
        to = directory / INPUT
        to.mkdir(mode=0o700)
        bounds: dict[str, list[Bounds]] = {}
        for node in planned.operators:
            if node.kind != "source":
                continue
            source = node.subject.source if isinstance(node.subject, RecordedSource) else node.subject
            if not source.lend(node.name, self.job, to):
                raise PipelineError(
                    f"{node.where}: source {node.name!r} ({type(source).__name__}) can be read only by its own job, so "
                    "a backtest cannot read it"
                )
            partitions = range(node.subject.partitions)
            stops = [self.stops[node.name, partition] for partition in partitions]
            starts = [self.starts.get((node.name, partition), 0) for partition in partitions]
            bounds[node.name] = [Bounds(start, *stop) for start, stop in zip(starts, stops, strict=True)]
        store = self.config.store
        place = self.config.place_in_store if store else ""
        RecordedInput(self.config.run, store, place, self.first, self.last, bounds).save(directory)

    def put(self, directory: Path, planned: Plan) -> None:
        """Lend once more, to the directory of the new job, which is empty: links within a file system stay valid."""
        self._lend(planned, directory)

    def _of_checkpoint(
        self, checkpoint: Checkpoint, config: JobConfig, planned: Plan, allow_dropped: bool
    ) -> Beginning:
        if not self.stateful:
            checkpoint = _without_state(checkpoint, planned)
        elif self.config.key_groups != config.key_groups:
            raise PipelineError(f"the recorded job has key_groups {self.config.key_groups}; use the same number")
        rescaling, chains = converted(
            checkpoint.topology, checkpoint.saved, planned, config.key_groups, allow_dropped, checkpoint.written
        )
        return Beginning(self.lent, checkpoint.epoch, 1, rescaling, chains, stores={})


@contextmanager
def backtest(arguments: Namespace) -> Iterator[Backtest]:
    """Yield what the job of `--input` reads, and the state with which it begins.

    Raises:
        PipelineError: the options contradict each other, or what they name is not recorded; the line says what is.
        CorruptData: the recording is damaged.
        Unavailable: the store of the recording does not answer.
    """
    if arguments.resume:
        raise PipelineError("--input starts a new job; --resume continues one, with the input that it has")
    if arguments.keep_sinks:
        raise PipelineError("--keep-sinks would add rows to those of the recorded job; leave it out with --input")
    here = holds_job(Path(arguments.input))
    job = find_job(None if here else arguments.input, arguments.input if here else None)
    with tempfile.TemporaryDirectory(prefix="causal-backtest-") as scratch:
        recording, lent = open_recording(job, Path(scratch) / "recording"), Path(scratch) / "lent"
        lent.mkdir()
        with stored_savepoints.as_directory(_savepoint(job, arguments.from_)) as savepoint:
            yield _chosen(recording, job, arguments, savepoint or "", lent)


def _savepoint(job: Path, name: str | None) -> str | None:
    """Return the place of the savepoint that `--from` names; None if it names an epoch or a time, or nothing."""
    if name is None or name.isdecimal():
        return None
    kept = {each.name: str(each.where) for each in savepoint_store.kept(job)}
    if name in kept:
        return kept[name]
    return name if stored_savepoints.is_url(name) or "/" in name or Path(name).is_dir() else None


def _chosen(recording: Recording, job: Path, arguments: Namespace, savepoint: str, lent: Path) -> Backtest:
    checkpoint, named = None, arguments.from_
    if savepoint:
        first = _epoch_of(savepoint, recording, job)
    elif named is None:
        first = recording.epochs().start
    else:
        first = recording.start_of(_epoch(recording, named, "--from"))
    last = _last(recording, arguments.to, first)
    if last < first:
        raise PipelineError(f"--to {arguments.to}: epoch {last} is before epoch {first}, at which the input begins")
    if not savepoint:
        checkpoint, _ = checkpoint_in(recording, recording.version_from(first), first)
    version = recording.version_at(last)
    stops = positions_after(recording, last)
    with version_of_job(recording.directory, version.config) as pipeline:
        places = frozenset(plan(pipeline, version.config).sink_places().values())
    since, until = shown_time(recording.time_ns(first)), shown_time(recording.time_ns(last + 1))
    begins = "the state of the savepoint" if savepoint else "empty state"
    if named is not None and not savepoint:
        begins = f"the state of checkpoint {first}"
    name = version.config.name
    warn(f"reads epochs {first} to {last} of {name} ({since} to {until}), beginning with {begins}")
    chosen = Backtest(job, version.config, first, last, checkpoint, named is not None, savepoint, stops, places, lent)
    if checkpoint is not None:
        chosen.starts = {partition: position for partition, (position, _) in positions_of(checkpoint).items()}
    return chosen


def _last(recording: Recording, to: str | None, first: int) -> int:
    """Return the last epoch that is read: the one that `--to` names, or the last one that continues from the first."""
    if to is not None:
        return _epoch(recording, to, "--to")
    for stretch in recording.stretches():
        if first in stretch or first == stretch.stop:
            return stretch[-1]
    whole = recording.epochs()
    if not whole:
        recording.version_at(first)  # raises: nothing is recorded yet
    return whole[-1]


def _epoch(recording: Recording, named: str, option: str) -> int:
    if named.isdecimal():
        recording.version_at(int(named))  # raises: the epoch is not recorded
        return int(named)
    return recording.epoch_at(time_of(named, option))


def _epoch_of(savepoint: str, recording: Recording, job: Path) -> int:
    """Return the epoch of a savepoint of the recorded job; for one of another backtest on its input, the first epoch.

    Raises:
        PipelineError: the savepoint is of another job.
    """
    where = Path(savepoint)
    if not (where / savepoint_store.FILE).exists():
        raise PipelineError(f"{where} does not contain a savepoint; create one with `causal savepoint --to {where}`")
    config, recorded = JobConfig.load(where), recording.versions[-1].config
    if config.input == str(job):
        return recording.epochs().start
    if config.run != recorded.run:
        raise PipelineError(
            f"the savepoint in {where} is not one of the job in {job}, so its positions mean other elements; use a "
            "savepoint of that job, or an epoch of its recording"
        )
    return savepoint_store.Savepoint.load(where).epoch


def _without_state(checkpoint: Checkpoint, planned: Plan) -> Checkpoint:
    """Return a checkpoint of the new job's tasks without state, at the positions of a recorded one."""
    positions, marks = positions_of(checkpoint), marks_of(checkpoint)
    topology = planned.topology
    saved = []
    for task in topology.tasks:
        first = initial(planned, task.index)
        inputs, places = dict(first.cut.inputs), dict[int, Mark]()
        for channel in topology.inputs(task.index):
            if channel.source == OUTSIDE:
                subtask = topology.subtasks.tasks[topology.subtask_channel(channel).target]
                partition = subtask.operators[0], channel.partition
                inputs[channel.id] = positions.get(partition, (0, False))[0], 0, False
                if partition in marks:
                    places[channel.id] = marks[partition]
        saved.append(replace(first, cut=replace(first.cut, epoch=checkpoint.epoch, inputs=inputs, places=places)))
    return Checkpoint(checkpoint.epoch, topology, saved, lambda: nullcontext(planned))
