"""The state of one task in a standby: a chain loaded from the files of the last complete checkpoint.

Later checkpoints are applied as they complete, so a promotion has nothing left to load.  Of a complete snapshot, which
may be all of gigabytes, only what has changed is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from causal.cut import Cut
from causal.errors import CorruptData
from causal.ports import Chain
from causal.storage.files import each_part, parts_of
from causal.task.checkpointing import SnapshotFile
from operators.engine.plan import Plan
from operators.state.snapshot_parts import increment_of


class Image:
    """A chain of task `task` and the files that are loaded.

    State: `load` adds files; a file that cannot be read raises and leaves the state before it.

    Args:
        fetch: brings a file that is not in the job's directory from the shared store, in a job of several hosts.
    """

    def __init__(self, plan: Plan, task: int, job_directory: Path, fetch: Callable[[str], bytes] | None = None) -> None:
        self.task = task
        self.cut = Cut()
        self.files: list[SnapshotFile] = []
        self._plan = plan
        self._directory = job_directory
        self._fetch = fetch
        self.chain: Chain = plan.chain(task)

    def load(self, files: Sequence[SnapshotFile]) -> None:
        """Load `files`, oldest first; files that are loaded already are not read again.

        Raises:
            CorruptData: a file is missing or is not the one that the checkpoint names.
        """
        for _ in self.loading(files):
            pass

    def loading(self, files: Sequence[SnapshotFile]) -> Iterator[int]:
        """Perform `load` in small steps, one per item of the iterator.

        Yields: the bytes of files that have been loaded so far, approximately.

        Raises:
            CorruptData: as `load`; the image is unusable if a part of that file was loaded.
        """
        increment = self._increment_in(files)
        if increment is not None:
            cut, changed = increment
            for _ in self.chain.restoring(changed):
                yield 0
            self.cut, self.files = cut, [files[0]]
        elif list(files[: len(self.files)]) != self.files:
            self.chain.release()
            self.chain = self._plan.chain(self.task)
            self.cut = Cut()
            self.files = []
        done = 0
        for path, size, digest in files[len(self.files) :]:
            parts = self._parts(path, digest)
            first = next(parts, None)
            if first is None:
                raise CorruptData(f"{path} holds no parts; restore it from a copy or start the job without --resume")
            cut, loaded = Cut.unpack(first), _Measured(parts)
            for _ in self.chain.restoring(loaded):
                yield done + loaded.bytes
            done += size
            self.cut = cut
            self.files.append((path, size, digest))
            yield done

    def _increment_in(self, files: Sequence[SnapshotFile]) -> tuple[Cut, list[bytes]] | None:
        """Return what leads from the files that are loaded to a complete snapshot of later; None if nothing does."""
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
    """An iterator over parts, and the bytes of those that it has returned."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self.bytes = 0
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            self.bytes += len(part)
            yield part
