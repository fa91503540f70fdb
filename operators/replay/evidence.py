"""A performance of a recording in a process of its own, which writes down what an explanation of a divergence needs.

    python -P -m operators.replay.evidence REQUEST.json RESULT.json

It performs epochs until one differs from the recording. For each event of the last one there is a digest of what it
emits and of the state of its keys; for the event that is asked for, also a trace of the user's code.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

from causal.errors import OperatorFailed, ReplayDivergence
from causal.records.batch import ROWS, pack_chunks
from causal.snapshot_files import SnapshotFile
from causal.storage.files import write_parts
from operators.recordings.bundle import open_recorded
from operators.recordings.recording import Recording
from operators.replay.exact import Replay
from operators.replay.user_trace import AUDITED, UserTrace, said
from operators.replay.watched import Arriving
from operators.runtime.forked import in_fork
from operators.runtime.image import Image
from operators.runtime.undeclared import Witness
from operators.state.canonical_parts import canonical, whole

COMPARISON_S = 120.0
ARRIVALS_MAX = 10_000


class Gathering:
    """A performance of some epochs.

    Args:
        target: (task, epoch, number) of the event of which a trace is kept; a number below 0 stands for none, and only
            questions are kept.
    """

    def __init__(self, recording: Recording, replay: Replay, target: tuple[str, int, int] | None) -> None:
        self.trace = UserTrace()
        self.events: dict[str, list[str]] = {}
        self.problem: dict[str, Any] | None = None
        self._recording = recording
        self._replay = replay
        self._target = target
        self._touched: list[Arriving] = []
        self._arrivals: list[list[Any]] = []
        self._tracing = False
        self._witnesses = {
            task: Witness(replay.plan.nodes(replay.index(task)), chain) for task, chain in replay.chains.items()
        }
        replay.watch_records(self._arrives, self._arrives)
        read = replay.cone._read

        def traced_read(*arguments: Any) -> Any:
            """Read elements of a source; its functions belong to the event that waits for them."""
            self._begin(str(replay.topology.tasks[replay.topology.channels[arguments[0]].target].name))
            try:
                return read(*arguments)
            finally:
                self._end()

        replay.cone._read = traced_read

    def perform(self, last: int) -> None:
        """Perform epochs up to `last`, or to the first that differs."""
        replay, task = self._replay, ""
        try:
            while replay.epoch <= last:
                self.events = {}
                replay.begin_epoch()
                while (following := replay.next()) is not None:
                    task = following[0]
                    self._perform(task)
                self._compare_states(replay.epoch)
        except ReplayDivergence as problem:
            where = problem.where.partition(" ")[0]
            self._differs(where if where in replay.tasks else task, problem.difference)
        except OperatorFailed as problem:
            self._differs(task, str(problem))

    def _perform(self, task: str) -> None:
        digest = blake2b(digest_size=8)
        self._touched.clear()
        self._begin(task)
        try:
            for output, position, chunk in self._replay.perform():
                body = chunk.body if chunk.kind == ROWS else pack_chunks((chunk,))
                digest.update(b"%d %d %d %b" % (output, position, chunk.count, body))
        except (ReplayDivergence, OperatorFailed) as problem:
            digest.update(str(problem).encode())
            raise
        finally:
            self._end()
            for each in self._touched:
                if each.key is not None:
                    digest.update(said(self._replay.state(task, each.operator, each.key)).encode())
            self.events.setdefault(task, []).append(digest.hexdigest())

    def _begin(self, task: str) -> None:
        target = self._target
        if target is not None and target[:2] == (task, self._replay.epoch):
            self._tracing = len(self.events.get(task, ())) == target[2]
            self.trace.begin(self._tracing)

    def _end(self) -> None:
        self.trace.end()
        self._tracing = False

    def _arrives(self, arriving: Arriving) -> None:
        self._touched.append(arriving)
        if self._tracing and len(self._arrivals) < ARRIVALS_MAX:
            self._arrivals.append(
                [len(self.trace.steps), arriving.operator, said(arriving.key), said(arriving.record), arriving.kind]
            )

    def _differs(self, task: str, text: str, key: Sequence[str] = ()) -> None:
        self.problem = {"task": task, "epoch": self._replay.epoch, "text": text, "state": list(key)}

    def _compare_states(self, barrier: int) -> None:
        """Compare the state at a barrier with the kept checkpoint, if there is one."""
        if barrier not in self._recording.checkpoints():
            return
        snapshot = self._recording.snapshot(barrier)
        for task, chain in self._replay.chains.items():
            if not chain.stages or task not in snapshot:
                continue
            difference = in_fork(lambda task=task: self._state_difference(task, snapshot[task]), COMPARISON_S)  # type: ignore[misc]
            if difference:
                text, *key = json.loads(difference)
                self.problem = {"task": task, "epoch": barrier - 1, "text": text, "state": key}
                raise _Differs

    def _state_difference(self, task: str, files: Any) -> bytes:
        plan, index, chain = self._replay.plan, self._replay.index(task), self._replay.chains[task]
        recorded = Image(plan, index, self._recording.directory)
        recorded.load(files)
        if canonical(recorded.chain, plan.chain(index)) == canonical(chain, plan.chain(index)):
            return b""
        difference = ["its state differed at the barrier"]
        for stage in chain.stages:
            for key in dict.fromkeys([*recorded.chain.kept_keys(stage.shown_as), *chain.kept_keys(stage.shown_as)]):
                before, after = (said(each.inspect(stage.shown_as, key)) for each in (recorded.chain, chain))
                if before != after:
                    return json.dumps([*difference, stage.shown_as, said(key), before, after]).encode()
        return json.dumps(difference).encode()

    def result(self) -> dict[str, Any]:
        """Return everything as JSON can carry it."""
        trace = self.trace
        return {
            "problem": self.problem,
            "events": self.events,
            "changed": {task: witness.changed() for task, witness in self._witnesses.items()},
            "steps": [asdict(step) for step in trace.steps],
            "uses": trace.uses,
            "asked": [[*asdict(question).values(), count] for question, count in trace.asked.items()],
            "arrivals": self._arrivals,
        }


class _Differs(Exception):
    """The state at a barrier differs."""


def main(request: Path, result: Path) -> None:
    """Perform the epochs of a request, and write what was observed."""
    asked = json.loads(request.read_text())
    scratch = Path(asked["scratch"])
    target = None if asked["target"] is None else tuple(asked["target"])
    recording = open_recorded(Path(asked["job"]), scratch / "recording")
    work = scratch / "work"
    work.mkdir()
    gathering: list[Gathering] = []
    if target is not None:

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event in AUDITED and gathering:  # `_getframe` is audited as well
                gathering[0].trace.audited(event, arguments, sys._getframe(1))

        sys.addaudithook(hook)
    begins = None if asked["begins"] is None else (Path(asked["begins"][0]), _files(asked["begins"][1]))
    replay = Replay(recording, Path(asked["job"]), asked["first"], work, begins=begins)
    gathering.append(Gathering(recording, replay, target))
    try:
        gathering[0].perform(asked["last"])
    except _Differs:
        pass
    replay.close()
    observed = gathering[0].result()
    if asked["saves"] and observed["problem"] is None:
        observed["saved"] = [str(scratch), _saved(replay, scratch)]
    result.write_text(json.dumps(observed))


def _saved(replay: Replay, directory: Path) -> dict[str, list[SnapshotFile]]:
    """Write the state of each task at the barrier, and return the files."""
    files = {}
    for place, (task, chain) in enumerate(replay.chains.items()):
        parts = [replay.task(task).reached.pack(), *whole(chain)]
        name = f"state-{place}"
        files[task] = [(name, *write_parts(directory / name, parts, durable=False))]
    return files


def _files(files: Mapping[str, Sequence[Sequence[Any]]]) -> dict[str, list[SnapshotFile]]:
    return {task: [(path, size, digest) for path, size, digest in each] for task, each in files.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
