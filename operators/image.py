"""The state of one task as a standby holds it: a chain loaded from the files of the last complete checkpoint.

Later checkpoints are applied as they complete, so a promotion has nothing left to load.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        if list(files[: len(self.files)]) != self.files:
            self.chain = self._plan.chain(self.task)
            self.cut = Cut()
            self.files = []
        for path, size, digest in files[len(self.files) :]:
            parts = read_parts(self._directory / path, digest)
            if not parts:
                raise CorruptData(f"{path} holds no parts; restore it from a copy or start the job anew")
            self.cut = Cut.unpack(parts[0])
            self.chain.restore(parts[1:])
            self.files.append((path, size, digest))
