"""A bundle file as a test: what happened in a job once is performed again, with the code that there is now (`replay`).

from operators.testing import replay

def test_the_failure_of_last_night():
    replay("tests/bugs/bug.causal")
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace as changed
from itertools import zip_longest
from pathlib import Path
from typing import Any

from causal.errors import CausalError, OperatorFailed, PipelineError, ReplayDivergence, Unavailable
from causal.ids import OUTSIDE
from causal.records.batch import RECORDS, ROWS, Chunk, decode_records
from causal.records.values import decode, encode
from causal.topology import Channel
from operators.builder.loading import load, modules_first, version_of_job
from operators.builder.pipeline import Pipeline
from operators.code_archive.archive import Archive
from operators.engine.plan import plan
from operators.recordings.bundle import Bundle, open_bundle
from operators.replay.exact import Replay
from operators.replay.performance import rows_in
from operators.runtime.forked import in_fork
from operators.stage.disk_state import located
from operators.testing.frames import without_our_frames

BUNDLE = "bundle"
"""The value of `code` for the code in the bundle file."""
RECORDED_S = 600.0
KEPT_BYTES_MAX = 256 << 20
"""The size of output that is kept so that a difference can be shown."""
SHOWN = 300


class StillRaises(AssertionError):
    """The exception that ended the recorded job is raised again; its cause is the exception of the user's code."""


class Replayed:
    """The result of a replay.

    Attributes:
        task: the task for which the bundle was made.
        epochs: the epochs that were performed.
        raised: the exception of user code with which it ended; None if there was none.
    """

    def __init__(self, bundle: Bundle, replay: Replay, scratch: ExitStack) -> None:
        self.task = bundle.task
        self.epochs = range(replay.epoch, bundle.last + 1)
        self.raised: BaseException | None = None
        self._replay = replay
        self._scratch = scratch  # state on disk is there as long as this result
        self._outputs: dict[int, list[tuple[int, Chunk]]] = {}
        self._bytes = 0
        replay.cone.emitted = self._emitted

    @property
    def verified(self) -> int:
        """The number of channels that were compared with the recording, each once per epoch."""
        return self._replay.cone.verified

    @property
    def emitted(self) -> list[Any]:
        """The records that the task has emitted, those for one task downstream after those for another."""
        return [
            record
            for channel in self._replay.topology.outputs(self._replay.index(self.task))
            if channel.target != OUTSIDE
            for record in self._records(channel)
        ]

    def rows(self, sink: str) -> list[Any]:
        """Return the rows of a sink, as JSON values; several tasks of the sink are joined.

        Raises:
            KeyError: no task of this sink is in the bundle; the error names those that are.
        """
        sinks: dict[str, list[Any]] = {}
        for channel in self._sink_channels():
            name = self._replay.topology.account(channel).rpartition("/")[0]
            sinks.setdefault(name, []).extend(self._records(channel))
        if sink not in sinks:
            there = f"its sinks are {', '.join(sinks)}" if sinks else "it has no sink"
            raise KeyError(f"sink {sink!r} is not in the bundle of {self.task}, {there}; make one with --task {sink}/0")
        return sinks[sink]

    def state(self, key: Any = None, operator: str = "") -> Any:
        """Return the state of a key at the end: what `ctx.state` holds, or table → value for declared state.

        Args:
            operator: the operator of the task; by default, the first one that keeps something for the key.
        """
        chain = self._replay.chains[self.task]
        names = [stage.shown_as for stage in chain.stages]
        if operator and operator not in names:
            raise KeyError(f"task {self.task} has no operator {operator!r}; its operators are {', '.join(names)}")
        tables: Mapping[str, Any] = {}
        for name in [operator] if operator else names:
            tables = tables or chain.inspect(name, key)
        return tables["state"] if tables.keys() == {"state"} else dict(tables)

    def __repr__(self) -> str:
        ended = f", raised {type(self.raised).__name__}" if self.raised is not None else ""
        return f"<Replayed {self.task}, epochs {self.epochs.start} to {self.epochs.stop - 1}{ended}>"

    def _sink_channels(self) -> list[Channel]:
        topology = self._replay.topology
        return [
            channel
            for task in self._replay.cone.replays
            for channel in topology.outputs(task)
            if channel.target == OUTSIDE and not channel.carries_requests
        ]

    def _emitted(self, channel: Channel, position: int, chunk: Chunk) -> None:
        if chunk.kind in (RECORDS, ROWS):
            self._bytes += len(chunk.body)
            if self._bytes > KEPT_BYTES_MAX:
                raise PipelineError(
                    f"the replay emits more than {KEPT_BYTES_MAX:,} bytes; make a bundle of fewer epochs for a test"
                )
            self._outputs.setdefault(channel.id, []).append((position, chunk))

    def _records(self, channel: Channel) -> list[Any]:
        """Return the records that were put on a channel."""
        return [record for _, record in _placed(self._replay, channel, self._outputs.get(channel.id, ()))]


@without_our_frames
def replay(bundle: str | Path, *, code: Pipeline | str | Path | None = None, verify: bool = True) -> Replayed:
    """Perform a bundle file of `causal bundle` again, with the recorded order, clock, random numbers and answers.

    Args:
        bundle: the file.
        code: the code to perform: a pipeline, the path of its file, or "bundle" for the code in the bundle file. By
            default, the file of the recorded pipeline as it is now, found by its name from the current directory, in a
            directory above the bundle file, or on `sys.path`.
        verify: whether everything that the tasks emit must be what the recorded code emitted, and a recorded exception
            must not be raised again. Without it, the result says what happened.

    Raises:
        ReplayDivergence: the code emits something else, or asks for something else; the first record is shown.
        StillRaises: the code raises the recorded exception again.
        OperatorFailed: the code raises an exception that the recorded code did not raise.
        PipelineError: the code is not found, does not load, or has other tasks.
        CorruptData: the file is damaged, or no bundle file.
    """
    __tracebackhide__ = True  # pytest reads this variable
    with ExitStack() as opened:
        scratch = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="causal-test-")))
        (scratch / "replay").mkdir()
        file = open_bundle(Path(bundle), scratch / "files")
        with _code(file, code) as pipeline:
            performing = Replay(file, file.path, file.first, scratch / "replay", (), pipeline)
            performing.cone.verifies = verify and not file.redacted
            performing.cone.repaired = code != BUNDLE
            result = Replayed(file, performing, opened)
            try:
                _perform(file, result, verify, recorded=code == BUNDLE)
            except ReplayDivergence as problem:
                raise problem if code == BUNDLE else _explained(problem, file, result, verify) from None
            finally:
                performing.close()
        result._scratch = opened.pop_all()
        return result


def _perform(bundle: Bundle, result: Replayed, verify: bool, recorded: bool) -> None:
    """Perform all epochs; `recorded` is whether the code is that of the bundle, which raises its exception again."""
    try:
        while result._replay.epoch <= bundle.last:
            result._replay.perform_epoch()
        result.raised = next(iter(result._replay.cone.failed.values()), None)
    except OperatorFailed as problem:
        result.raised = problem
    if result.raised is None and bundle.raised and recorded and verify:
        raise ReplayDivergence(bundle.task, f"the recorded exception is not raised again: {bundle.raised}")
    if result.raised is None or not verify or (recorded and bundle.raised):
        return
    if bundle.raised:
        raise StillRaises(f"{bundle.path}: the recorded exception is raised again: {result.raised}") from (
            result.raised.__cause__ or result.raised
        )
    raise result.raised


# The code.


@contextmanager
def _code(bundle: Bundle, code: Pipeline | str | Path | None) -> Iterator[Pipeline]:
    """Yield the pipeline to perform, whose modules are imported until the context ends."""
    version = bundle.version_at(bundle.first)
    archive, config = bundle.archive(version), version.config
    if code == BUNDLE:
        with version_of_job(bundle.directory, config) as pipeline:
            yield pipeline
        return
    pipeline = (
        code
        if isinstance(code, Pipeline)
        else load(_file_now(bundle, archive) if code is None else code, config.settings)
    )
    with modules_first(pipeline):
        described = plan(pipeline, located(changed(config, state_directory=""), bundle.directory)).describe()
        _check_tasks(archive.plan, described)
        yield pipeline


def _file_now(bundle: Bundle, archive: Archive) -> Path:
    """Return the file of the recorded pipeline as it is now.

    Raises:
        PipelineError: it is not found.
    """
    parts = Path(archive.pipeline.path).parts[1:]
    above = list(bundle.path.absolute().parents)[:-1]
    roots = list(dict.fromkeys([Path.cwd(), *above, *(Path(place or ".").absolute() for place in sys.path)]))
    for begin in range(len(parts)):
        for root in roots:
            path = root.joinpath(*parts[begin:])
            if path.is_file():
                return path
    raise PipelineError(
        f"{parts[-1]}, the file of the recorded pipeline, is neither below {Path.cwd()}, nor above {bundle.path}, "
        "nor on sys.path; name it with code=, or use code='bundle' for the recorded code"
    )


def _check_tasks(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise `PipelineError` if the code has other tasks than the recorded code."""
    before, after = ({task["task"]: task for task in each.get("tasks", ())} for each in (recorded, now))
    differing = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    for name in differing:
        old, new = (" > ".join(each[name]["operators"]) if name in each else "nothing" for each in (before, after))
        if old == new and name != differing[-1]:
            continue
        what = f"performs {new}, and performed {old}" if old != new else "has other neighbours"
        raise PipelineError(
            f"the code has other tasks than the recorded code: {name} {what}; an exact replay needs the same tasks, "
            "compare such code with `causal diff`"
        )


# The difference.


def _explained(problem: ReplayDivergence, bundle: Bundle, result: Replayed, verify: bool) -> ReplayDivergence:
    """Return the difference with the first record that differs from what the recorded code emits."""
    here = result._replay
    if not verify:
        cause = "asks for something else than the recorded code did; compare such code with `causal diff`"
        return ReplayDivergence(problem.where, problem.difference, cause)
    try:
        known = decode(in_fork(lambda: encode(_recorded_outputs(bundle)), RECORDED_S))
    except (CausalError, Unavailable) as failed:
        return ReplayDivergence(problem.where, problem.difference, f"differs from the recorded code ({failed})")
    advice = "if that is meant, pass verify=False and assert on the result"
    for task in here.cone.replays:
        for channel in here.topology.outputs(task):
            before = [tuple(each) for each in known.get(channel.id, ())]
            after = [
                (place, repr(record)) for place, record in _placed(here, channel, result._outputs.get(channel.id, ()))
            ]
            for (place, old), (other, new) in zip_longest(before, after, fillvalue=(-1, "nothing")):
                if old == new and place == other:
                    continue
                if other == -1:
                    break  # the replay has ended before
                shown = place if place >= 0 else other
                target = "its store" if channel.target == OUTSIDE else here.topology.tasks[channel.target].name
                cause = (
                    f"emits another record {shown} to {target}: it was {old:.{SHOWN}} and is {new:.{SHOWN}}; {advice}"
                )
                return ReplayDivergence(str(here.topology.tasks[task].name), problem.difference, cause)
    return ReplayDivergence(problem.where, problem.difference, f"does not do what the recorded code did; {advice}")


def _recorded_outputs(bundle: Bundle) -> dict[int, list[tuple[int, str]]]:
    """Return what the recorded code emits on each channel, in a fork: the position and text of each record."""
    with tempfile.TemporaryDirectory(prefix="causal-test-") as directory:
        replay = Replay(bundle, bundle.path, bundle.first, Path(directory))
        replay.cone.verifies = False
        result = Replayed(bundle, replay, ExitStack())
        try:
            _perform(bundle, result, verify=False, recorded=True)
        except ReplayDivergence:
            pass  # what was emitted until then is compared
        return {
            channel.id: [(place, repr(record)) for place, record in _placed(replay, channel, chunks)]
            for task in replay.cone.replays
            for channel in replay.topology.outputs(task)
            if (chunks := result._outputs.get(channel.id))
        }


def _placed(replay: Replay, channel: Channel, chunks: Sequence[tuple[int, Chunk]]) -> Iterator[tuple[int, Any]]:
    """Yield the position and content of each record that was put on a channel."""
    for position, chunk in chunks:
        if channel.target == OUTSIDE:
            yield from enumerate(map(json.loads, rows_in(replay.plan.sink_of(channel), chunk)), position)
        else:
            yield from enumerate(decode_records(chunk.body), position)
