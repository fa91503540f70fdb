"""The content of a directory after a loss of power: of each file what was last synced, of each directory its names.

The worst case that POSIX allows, and no better: a file that was never synced is empty, a name that was never synced is
not there, wherever the file's bytes are.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest


class PowerLoss:
    """Watches every fsync and fdatasync of this process.

    Attributes:
        synced: paths, in order.
        after: called behind each sync: a moment at which the power may go.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._files: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {os.stat(root).st_ino: {}}
        self.synced: list[Path] = []
        self.after: Callable[[], None] = lambda: None
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._sync)

    def _sync(self, descriptor: int) -> None:
        status, path = os.fstat(descriptor), Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if stat.S_ISDIR(status.st_mode):
            self._names[status.st_ino] = {
                entry.name: (entry.inode(), entry.is_dir(follow_symlinks=False)) for entry in os.scandir(path)
            }
        else:
            with open(f"/proc/self/fd/{descriptor}", "rb") as file:
                self._files[status.st_ino] = file.read()
        self.synced.append(path)
        self.after()

    def left_in(self, place: Path) -> Path:
        """Write the rest into `place`."""
        self._restore(os.stat(self._root).st_ino, place)
        return place

    def _restore(self, inode: int, place: Path) -> None:
        place.mkdir(parents=True)
        for name, (child, folder) in self._names.get(inode, {}).items():
            if folder:
                self._restore(child, place / name)
            else:
                (place / name).write_bytes(self._files.get(child, b""))
