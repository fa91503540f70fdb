"""A bundle file as a recording: what `causal bundle` has cut out of one, with its input (0058).

It contains the files of a recording that has only some tasks and epochs, under the same names, so it is read by the
same code. The parts that a replay needs as files are written to a scratch directory, by names that were checked.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from causal.errors import CorruptData, PipelineError
from causal.storage.objects import Missing, Objects
from operators.recordings.bundle_file import BundleFile
from operators.recordings.input_slice import InputSlice, SliceReader
from operators.recordings.recording import Recording, open_recording

INPUT = "input"
_POINTS = {"epoch": int, "at": str, "at_crash": bool}
"""The options of `causal replay` that name the point for which a bundle is made."""


class _Parts(Objects):
    """The parts of a bundle file, read as objects."""

    def __init__(self, file: BundleFile) -> None:
        self.url = str(file.path)
        self._file = file

    def create(self, name: str, data: bytes | memoryview, durable: bool = True) -> bool:
        raise PipelineError(f"{self.url} is a bundle file, which is never changed")

    def read(self, name: str) -> bytes:
        try:
            return self._file.read(name)
        except KeyError:
            raise Missing(f"{self.url} has no part {name!r:.200}; make it again") from None

    def sizes(self, folder: str, after: str = "") -> dict[str, int]:
        return {name: size for name, size in self._file.sizes.items() if name.startswith(f"{folder}/")}

    def remove(self, names: Iterable[str]) -> None:
        raise PipelineError(f"{self.url} is a bundle file, which is never changed")


class Bundle(Recording):
    """A bundle file, as a recording.

    Attributes:
        path: the file.
        facts: its manifest.
        task: the task for which it was made; all of its other tasks are upstream.
        point: the option of `causal replay` that names the point for which it was made → the value.
        first, last: its epochs; the first begins at its checkpoint.
        raised: the exception that ended the recorded job in it; empty if there was none.
    """

    def __init__(self, file: BundleFile, scratch: Path) -> None:
        facts, self.path = file.facts, file.path
        try:
            self.facts: Mapping[str, Any] = facts
            self.task = str(facts["task"])
            self.point: Mapping[str, Any] = {
                name: kind(facts["point"][name]) for name, kind in _POINTS.items() if name in facts["point"]
            }
            self.first, self.last = int(facts["first"]), int(facts["last"])
            self.raised = str(facts["raised"])
            self.redacted = tuple(map(str, facts["redacted"]))
            self._slices = {(str(source), int(partition)): str(name) for source, partition, name in facts["inputs"]}
        except (KeyError, TypeError, ValueError) as problem:
            raise CorruptData(f"{file.path}: its manifest is damaged ({problem}); copy the file again") from None
        self._file = file
        super().__init__(_Parts(file), str(file.path), scratch, True)

    def reload(self) -> None:
        """Do nothing, because a bundle file does not change."""

    def reader(self, source: str, partition: int) -> SliceReader:
        where = str(self._file.path)
        name = self._slices.get((source, partition))
        if name is None or name not in self._file.sizes:
            raise PipelineError(f"{where} has no input of source {source!r}, partition {partition}; make it again")
        return InputSlice.of(self._file.read(name), f"{where}: {name}").reader(where)

    def _fetch(self, name: str) -> None:
        if name not in self._file.sizes:
            raise CorruptData(f"{self._file.path} has no part {name!r:.200}; make it again")
        super()._fetch(name)


def open_bundle(path: Path, scratch: Path | None = None) -> Bundle:
    """Open a bundle file.

    Args:
        scratch: a directory for its files; by default, one that this process creates.

    Raises:
        PipelineError: the file does not exist.
        CorruptData: it is no bundle file, is damaged, or has another format.
    """
    file = BundleFile(path)
    return Bundle(file, scratch or Path(tempfile.mkdtemp(prefix="causal-bundle-")))


def open_recorded(place: Path, scratch: Path | None = None) -> Recording:
    """Open the recording in the directory of a job, or a bundle file.

    Raises:
        PipelineError, CorruptData, Unavailable: as for `open_recording` and `open_bundle`.
    """
    return open_recording(place, scratch) if place.is_dir() else open_bundle(place, scratch)
