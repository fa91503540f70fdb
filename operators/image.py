"""The state of one task as a standby holds it: a chain loaded from the files of the last complete checkpoint.

Later checkpoints are applied as they complete, so a promotion has nothing left to load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from causal.checkpointing import Cut, SnapshotFile
from causal.errors import CorruptData
from causal.ports import Chain
from causal.shell.files import read_parts
from operators.plan import Plan


class Image:
    """A chain of task `task` and how far it is loaded.

    State: `load` moves it on; what cannot be read leaves it as it was before that file, and raises.
    """

    def __init__(self, plan: Plan, task: int, job_directory: Path) -> None:
        self.task = task
        self.cut = Cut()
        self.files: list[SnapshotFile] = []
        self._plan = plan
        self._directory = job_directory
        self.chain: Chain = plan.chain(task)

    def load(self, files: Sequence[SnapshotFile]) -> None:
        """Hold what `files` restore, oldest first; files that are loaded already are not read again.

        Raises:
            CorruptData: a file is missing or is not the one that the checkpoint names.
        """
        for _ in self.loading(files):
            pass

    def loading(self, files: Sequence[SnapshotFile]) -> Iterator[int]:
        """Do what `load` does, in small steps: one each time that the next item is asked for.

        Yields: bytes of files that have been loaded by now, about.

        Raises:
            CorruptData: as `load`; what was loaded of that file makes the image useless.
        """
        if list(files[: len(self.files)]) != self.files:
            self.chain = self._plan.chain(self.task)
            self.cut = Cut()
            self.files = []
        done = 0
        for path, size, digest in files[len(self.files) :]:
            parts = read_parts(self._directory / path, digest)
            if not parts:
                raise CorruptData(f"{path} holds no parts; restore it from a copy or start the job anew")
            cut = Cut.unpack(parts[0])
            left, count = parts[:0:-1], len(parts)
            for _ in self.chain.restoring(left.pop() for _ in range(count - 1)):
                yield done + size * (count - len(left)) // count
            done += size
            self.cut = cut
            self.files.append((path, size, digest))
            yield done
