"""The state of one task in a standby: a chain loaded from the files of the last complete checkpoint.

Later checkpoints are applied as they complete, so a promotion has nothing left to load. A complete snapshot may contain
gigabytes, so only the changes in it are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from causal.cut import Cut
from causal.errors import CorruptData
from causal.snapshot_files import SnapshotFile, span_of
from causal.storage.files import each_part, parts_of
from operators.engine.operator_chain import OperatorChain
from operators.engine.plan import Plan
from operators.state.snapshot_parts import increment_of


class Image:
    """A chain for `task`, and the files that have been loaded into it.

    State: `load` adds files. If a file cannot be read, `load` raises and keeps the state of the files before it.

    Args:
        fetch: in a multi-host job, fetches from the shared store a file that is missing from the job directory.
    """

    def __init__(self, plan: Plan, task: int, job_directory: Path, fetch: Callable[[str], bytes] | None = None) -> None:
        self.task = task
        self.cut = Cut()
        self.files: list[SnapshotFile] = []
        self.whole = True
        """Whether the chain has the state of `files`; false while another file is being loaded."""
        self._plan = plan
        self._directory = job_directory
        self._fetch = fetch
        self.chain: OperatorChain = plan.chain(task)

    def load(self, files: Sequence[SnapshotFile]) -> None:
        """Load `files`, oldest first; files that have already been loaded are not read again.

        Raises:
            CorruptData: a file is missing, or is not the file that the checkpoint names.
        """
        for _ in self.loading(files):
            pass

    def loading(self, files: Sequence[SnapshotFile]) -> Iterator[int]:
        """Perform `load` in small steps, one for each item of the iterator.

        Yields: the approximate number of bytes of the files loaded so far.

        Raises:
            CorruptData: as for `load`; if part of the file has been loaded, the image is no longer `whole`.
        """
        covered = self._covered_by(files)
        increment = None if covered else self._increment_in(files)
        if increment is not None:
            cut, changed = increment
            self.whole = False
            for _ in self.chain.restoring(changed):
                yield 0
            self.cut, self.whole, covered = cut, True, 1
        if covered:
            self.files = list(files[:covered])
        elif self.files:
            self.chain.release()
            self.chain = self._plan.chain(self.task)
            self.cut = Cut()
            self.files = []
        done = 0
        for path, size, digest in files[covered:]:
            parts = self._parts(path, digest)
            first = next(parts, None)
            if first is None:
                raise CorruptData(
                    f"{path} does not contain the parts of a snapshot; restore it from a copy or start the job "
                    "without --resume"
                )
            cut, loaded = Cut.unpack(first), _Measured(parts)
            self.whole = False
            for _ in self.chain.restoring(loaded):
                yield done + loaded.bytes
            done += size
            self.cut = cut
            self.files.append((path, size, digest))
            self.whole = True
            yield done

    def covers(self, files: Sequence[SnapshotFile]) -> bool:
        """Return whether `load` would read only files whose barriers are later than those loaded."""
        return not files or self._covered_by(files) > 0

    def _covered_by(self, files: Sequence[SnapshotFile]) -> int:
        """Return how many of `files` contain nothing that is not loaded; 0 if the complete one at the front does.

        The state at a barrier of a complete checkpoint is always the same. A merged file may contain changes before and
        after the barrier that has been loaded.
        """
        if self.files and list(files[: len(self.files)]) == self.files:
            return len(self.files)
        spans = [span_of(path) for path, _, _ in files]
        if not self.files or None in spans:
            return 0
        return sum(span is not None and span.last <= self.cut.epoch for span in spans)

    def _increment_in(self, files: Sequence[SnapshotFile]) -> tuple[Cut, list[bytes]] | None:
        """Return the increment from the loaded files to a later complete snapshot, or None if there is none."""
        if not files or not self.files or files[0] == self.files[0]:
            return None
        path, _, digest = files[0]
        parts = self._parts(path, digest)
        first, second = next(parts, b""), next(parts, b"")
        changed = increment_of(second, self.files[-1][2]) if second else None
        return None if changed is None else (Cut.unpack(first), changed)

    def _parts(self, path: str, digest: str) -> Iterator[bytes]:
        local = self._directory / path
        if self._fetch is None or local.exists():
            return each_part(local, digest)
        return parts_of(self._fetch(path), path, digest)


class _Measured:
    """An iterator over parts that counts the bytes of the parts it has returned."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self.bytes = 0
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            self.bytes += len(part)
            yield part
