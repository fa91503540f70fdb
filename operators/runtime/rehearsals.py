"""The check of a task's operators by its standby, which performs each recorded epoch again from the task's log.

This implements `causal run --verify-replay`. Each epoch is performed in a fork of the standby in which no operator has
run before. Values that the task keeps in attributes, globals and closures are missing there, as they would be in a
recovery. A result that differs or cannot be repeated reveals nondeterminism that no recovery has encountered yet (D7).

With several hosts, snapshots and recordings are in the shared store. They are copied into a directory of this process
before the fork, because the store's client uses threads, and removed when no check needs them any more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import CorruptData, OperatorFailed, ReplayDivergence, Unavailable
from causal.ids import TaskIndex
from causal.snapshot_files import SNAPSHOT_SUFFIX, SnapshotFile
from causal.storage.disk import RECORDING_SUFFIX
from causal.storage.files import read_parts
from causal.task.recording import Recorded, read_recording
from causal.task.rehearsal import rehearse
from operators.engine.plan import Plan
from operators.runtime.forked import in_fork
from operators.runtime.image import Image
from operators.runtime.undeclared import Witness, explained, words
from operators.state.canonical_parts import canonical

REHEARSAL_S_MAX = 600.0
"""The maximum duration of the second performance; an epoch that takes longer is not checked."""


class Rehearsals:
    """The checks made by one standby.

    State: `checked` is the number of epochs that had the same results the second time; `problem` describes the first
        difference and never changes after that.

    Args:
        fetch: in a multi-host job, fetches a file from the shared store.
    """

    def __init__(
        self,
        plan: Plan,
        config: JobConfig,
        job_directory: Path,
        say: Callable[[str], None],
        fetch: Callable[[str], bytes] | None = None,
    ) -> None:
        self.checked = 0
        self.problem = ""
        self._plan = plan
        self._config = config
        self._directory = job_directory if fetch is None else job_directory / "spill" / f"checks-{os.getpid()}"
        self._say = say
        self._fetch = fetch
        self._fetched: set[str] = set()

    def follow(self, image: Image, files: Sequence[SnapshotFile]) -> None:
        """Perform the epoch between `image` and `files`, which will be loaded into it, if it is the next epoch.

        A difference is described in `problem`; a recording that is missing or incomplete is logged and skipped.
        """
        if not files or self.problem:
            return
        name = self._plan.topology.tasks[image.task].name
        recording = files[-1][0].removesuffix(SNAPSHOT_SUFFIX) + RECORDING_SUFFIX
        wanted = [path for path, _, _ in (*image.files, *files)]
        try:
            self._bring(wanted)
            reached = Cut.unpack(read_parts(self._directory / files[-1][0], files[-1][2])[0])
            if image.cut.epoch != reached.epoch - 1:
                return
            self._bring([*wanted, recording])
            recorded = read_recording(read_parts(self._directory / recording))
            if recorded.unfit:
                raise CorruptData(recorded.unfit)
        except (CorruptData, Unavailable) as problem:
            self._say(f"{name}, epoch {image.cut.epoch} is not checked: {problem}")
            return
        try:
            difference = in_fork(
                lambda: self._rehearsed(name, image, files, recorded, reached).encode(), REHEARSAL_S_MAX
            )
        except Unavailable as unknown:
            self._say(f"{name}, epoch {image.cut.epoch} is not checked: {unknown}")
            return
        if difference:
            self.problem = difference.decode()
        else:
            self.checked += 1

    def _bring(self, paths: Sequence[str]) -> None:
        """Fetch these files from the shared store, and remove files that were fetched only for an earlier check.

        Raises:
            CorruptData: a file is not in the store.
            Unavailable: the process is ending, or the directory cannot be written.
        """
        if self._fetch is None:
            return
        try:
            for path in sorted(self._fetched.difference(paths)):
                (self._directory / path).unlink(missing_ok=True)
                self._fetched.remove(path)
            for path in dict.fromkeys(paths):
                if path not in self._fetched:
                    (self._directory / path).parent.mkdir(parents=True, exist_ok=True)
                    (self._directory / path).write_bytes(self._fetch(path))
                    self._fetched.add(path)
        except OSError as problem:
            raise Unavailable(f"{self._directory}: cannot be written: {problem.strerror}") from None

    def _rehearsed(
        self, name: str, image: Image, files: Sequence[SnapshotFile], recorded: Recorded, reached: Cut
    ) -> str:
        """Return the difference, or ""; this runs in its own process, in which modules are in their initial state.

        The first epoch is performed twice there, because the task had not performed anything before it either. If
        operators keep data outside their state, only a second execution, after the first, can differ.
        """
        first, rehearsed = self._begun(image)
        try:
            self._perform(name, image, rehearsed, files, recorded, reached)
        except ReplayDivergence as problem:
            return explained(problem, first.changed(), self._plan.topology, self._plan.commuting)
        except OperatorFailed as problem:
            return "; ".join(filter(None, (str(problem), words(first.changed()))))
        if image.files:
            return ""
        places = first.changed()
        if not places:
            return ""
        _, again = self._begun(image)
        for stage in getattr(again.chain, "stages", ()):
            for attribute, value in first.attributes().get(stage.name, {}).items():
                setattr(stage._operator, attribute, value)
        try:
            self._perform(name, image, again, files, recorded, reached)
        except ReplayDivergence as problem:
            return explained(problem, places, self._plan.topology, self._plan.commuting)
        except OperatorFailed as problem:
            self._say(
                f"{name}, epoch {image.cut.epoch}: it raised when it was performed again: {problem}; {words(places)}"
            )
        return ""

    def _begun(self, image: Image) -> tuple[Witness, Image]:
        """Return a witness of the data that user code keeps, and the task as of `image`, ready for its next event."""
        rehearsed = Image(self._plan, image.task, self._directory)
        rehearsed.load(image.files)
        rehearsed.chain.open()
        return Witness(self._plan.nodes(image.task), rehearsed.chain), rehearsed

    def _perform(
        self, name: str, image: Image, rehearsed: Image, files: Sequence[SnapshotFile], recorded: Recorded, reached: Cut
    ) -> None:
        """Perform the epoch and compare all of its results.

        Raises:
            ReplayDivergence, OperatorFailed: as for `rehearse`.
        """
        task = TaskIndex(image.task)
        rehearse(self._plan.topology, task, self._config, rehearsed.chain, image.cut, recorded, reached)
        written = Image(self._plan, image.task, self._directory)
        written.load(files)
        if canonical(written.chain, self._plan.chain(task)) != canonical(rehearsed.chain, self._plan.chain(task)):
            raise ReplayDivergence(
                name, f"epoch {image.cut.epoch}: when it was performed again from its own log, its state differed"
            )
