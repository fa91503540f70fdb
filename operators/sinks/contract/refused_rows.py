"""Dead letters for rows that a sink's store refuses, in files on one machine.

    refused-<task>.jsonl                             the letters
    .refused-<task>.<incarnation>.kept               letters kept until their bundle is stored, as framed records

Under the lock, a successor removes the second file of each earlier process. A zombie that resumes therefore has no
letters to show: the letters of stored bundles have already been shown.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from causal.errors import PipelineError, Unavailable
from causal.ports import StoreState
from causal.storage.files import sync_directory
from causal.storage.framing import bodies, framed, replace_file, write_whole
from causal.storage.lock import locked_once
from causal.storage.modes import ensure_directory, mode_of_directories, mode_of_files, opened
from operators.sinks.contract.letters import Kept, standing, stored, unpacked
from operators.sinks.contract.sink import encode_json

BUSY_MS = 2000


class RefusedRows:
    """The dead letters of one sink task, for `operators.sinks.contract.letters.Letters`.

    No file is created before the first row is refused.

    Args:
        directory: the directory of the dead letters; its parent must exist.
        run: the run of the job; letters are never added to a file with letters of another run.
        private: whether only the job's user can read the letters.
    """

    def __init__(self, directory: Path, task: str, run: str, private: bool = True) -> None:
        self.path = directory / f"refused-{task.replace('/', '-')}.jsonl"
        self._run = run
        self._private = private
        self._shown: set[tuple[int, str]] | None = None
        """The (position, record) of the letters of this bundle that are shown; None: not read yet."""

    def keep(self, kept: Kept, incarnation: int) -> None:
        """See `Letters.keep`.

        Raises:
            PipelineError: the file contains letters of another run.
        """
        with self._writing():
            ensure_directory(self.path.parent, mode_of_directories(self._private))
            with self._locked():
                if self._shown is None:
                    self._append(kept.first, [])
                path = self._kept_of(incarnation)
                fresh = not path.exists()
                file = opened(path, os.O_RDWR | os.O_APPEND, mode_of_files(self._private))
                try:
                    # An earlier attempt may have left a partial record.
                    os.ftruncate(file, bodies(path.read_bytes(), path)[1])
                    write_whole(file, framed(kept.packed()))
                    os.fdatasync(file)
                finally:
                    os.close(file)
                if fresh:
                    sync_directory(self.path.parent)

    def show(self, incarnation: int) -> None:
        """See `Letters.show`; does nothing if a successor has already shown the letters."""
        with self._writing(), self._locked():
            path = self._kept_of(incarnation)
            if every := self._kept_in(path):
                self._show(stored(every, self._run))
                os.truncate(path, 0)

    def settle(self, state: StoreState, incarnation: int) -> None:
        """See `Letters.settle`."""
        with self._writing():
            for path in sorted(self.path.parent.glob(f"{glob.escape(f'.{self.path.stem}.')}*.kept")):
                if int(path.suffixes[-2][1:]) <= incarnation:
                    with self._locked():
                        self._show(standing(self._kept_in(path), self._run, state))
                        path.unlink(missing_ok=True)

    def withdraw(self, position: int) -> None:
        """See `Letters.withdraw`."""
        with self._writing():
            if not self.path.exists():
                return
            with self._locked():
                lines = self.path.read_bytes().splitlines(keepends=True)
                left = [line for line in lines if line.endswith(b"\n") and json.loads(line)["position"] < position]
                if len(left) < len(lines):
                    os.close(replace_file(self.path, b"".join(left), True, mode_of_files(self._private)))
                self._shown = None

    def _kept_of(self, incarnation: int) -> Path:
        return self.path.with_name(f".{self.path.stem}.{incarnation:012d}.kept")

    def _kept_in(self, path: Path) -> list[Kept]:
        try:
            return list(map(unpacked, bodies(path.read_bytes(), path)[0]))
        except FileNotFoundError:
            return []

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self.path.with_name(f".{self.path.stem}.lock")
        with locked_once(lock, BUSY_MS, self.path, mode_of_files(self._private)):
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            self._shown = None
            raise Unavailable(
                f"{self.path}: {problem.strerror}; the dead letter cannot be written: free space or repair the disk"
            ) from problem

    def _show(self, every: Iterable[Kept]) -> None:
        for kept in every:
            self._append(kept.first, kept.letters)

    def _append(self, first: int, letters: Iterable[bytes]) -> None:
        """Show those of the given letters that are not yet shown; their bundle begins at `first`."""
        file = opened(self.path, os.O_RDWR | os.O_APPEND, mode_of_files(self._private))
        try:
            if self._shown is None:
                os.ftruncate(file, self._read(first))
            self._shown = shown = {known for known in self._shown or () if known[0] >= first}
            fresh = []
            for line in letters:
                letter = json.loads(line)
                known = (letter["position"], encode_json(letter["record"]))
                if known not in shown:
                    shown.add(known)
                    fresh.append(line)
            if fresh:
                write_whole(file, b"".join(fresh))
                os.fdatasync(file)
        finally:
            os.close(file)

    def _read(self, first: int) -> int:
        """Read the shown letters of rows from `first` on, and return the size of all complete letters in the file."""
        self._shown, whole = set(), 0
        with open(self.path, "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break  # an incomplete letter, because its writer died or the disk was full
                whole += len(line)
                letter = json.loads(line)
                if letter["run"] != self._run:
                    raise PipelineError(f"{self.path} has dead letters of another run; move it elsewhere")
                if letter["position"] >= first:
                    self._shown.add((letter["position"], encode_json(letter["record"])))
        return whole
