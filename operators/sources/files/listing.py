"""The files of a source in an order that is decided once, by a journal of listings.

A listing is a sorted list of files that no earlier listing contains, created under the next number (D17). If several
processes create a listing at the same moment, one of them wins, and all of them read its listing. File i of all
listings belongs to partition i modulo the number of partitions. Neither the order in which a directory is listed nor a
file that appears in the meantime changes the decision.

A listing that is created while files are not followed is the last one. If a later version of the job does not follow
files either, it must have the patterns of that listing. If it follows files, it continues after that listing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import xxhash

from causal.errors import CorruptData, OperatorFailed, PipelineError
from causal.storage.files import packed_parts, parts_of
from causal.storage.objects import Missing, Objects
from operators.sources.files.listed import Listed

FILES_MAX = 1_000_000
"""The most files that one source takes: their names are remembered, about 100 bytes each."""
FORMAT = 1
PREFIX = "listing-"


@dataclass(frozen=True, slots=True)
class Fresh:
    """A file that is in no listing yet; `real` is its path without symbolic links, and `version` as in `Listed`."""

    path: str
    size: int
    version: int | str
    real: str


class Finder(Protocol):
    """The files that match the patterns of a source at the moment.

    Attributes:
        patterns: absolute paths, URLs or globs of them.
        written: the patterns as written in the pipeline.
    """

    patterns: Sequence[str]
    written: Sequence[str]

    def fresh(self, is_known: Callable[[str], bool]) -> Iterable[Fresh]:
        """Return the files that match, except those whose path is known.

        Raises:
            OperatorFailed: the job may not look there.
            Unavailable: the directory or the store does not respond.
        """
        ...

    def listed(self, path: str, size: int, version: int | str, number: int) -> Listed:
        """Return an entry of a listing."""
        ...


@dataclass(frozen=True, slots=True)
class Listing:
    """One listing: files of all partitions, and whether the listing is the last one."""

    files: tuple[Listed, ...]
    last: bool


class FileJournal:
    """The listings of one source, which any number of processes may read and continue.

    Args:
        objects: the storage of the listings: the job's directory, or the store that all hosts share.
        folder: the folder of the listings there; its last part is the source's name.
        follow: whether new files are added as they appear; otherwise, the next listing is the last.
    """

    def __init__(
        self, objects: Objects, folder: str, finder: Finder, partitions: int = 1, follow: bool = False
    ) -> None:
        self._objects = objects
        self._folder = folder
        self._finder = finder
        self._partitions = partitions
        self._follow = follow
        self._known: set[int] = set()
        self._files = 0
        self._looked_up_to = 0  # the number of listings whose files are in `_known`
        self._closed = False  # whether the latest of these listings was meant to be the last

    def listing(self, number: int) -> Listing | None:
        """Return the listing with the given number, or None if it does not exist yet.

        Raises:
            CorruptData: the listing is damaged.
            PipelineError: the list is complete and the options differ, or the number of partitions differs.
            Unavailable: the storage does not respond.
        """
        body = self._body(number)
        if body is None:
            return None
        files = tuple(
            self._finder.listed(path, size, version, place)
            for place, (path, size, version) in enumerate(body["files"], body["first"])
        )
        return Listing(files, self._ends(number, body))

    def listings(self, first: int) -> Iterator[tuple[int, Listing]]:
        """Yield the listings that there are from a number on, and their numbers; the errors are those of `listing`."""
        number = first
        while (listing := self.listing(number)) is not None:
            yield number, listing
            number += 1

    def check_resumed(self, rolled_back: bool) -> None:
        """Raise an error if a job is resumed with options that contradict the list of files.

        Args:
            rolled_back: whether the job resumes the savepoint's version, so that listings of later versions are
                ignored.
        Raises:
            CorruptData: a listing is damaged.
            PipelineError: the list is complete, and the options contradict it or match other files.
        """
        names = [name.rpartition("/")[2] for name in self._objects.names(self._folder)]
        numbers = [int(name.removeprefix(PREFIX)) for name in names if name.startswith(PREFIX)]
        for number in sorted({min(numbers), max(numbers)}) if numbers else ():
            body = self._body(number)
            if body is None:
                continue
            self._ends(number, body)
            if body["last"] and self._follow and not rolled_back:
                raise PipelineError(self._complete("follow=True"))

    def _ends(self, number: int, body: dict[str, Any]) -> bool:
        """Return whether this listing is the last; raise an error if the options contradict a complete list."""
        if body["last"] and self._follow and not number:  # the job has not followed files before
            raise PipelineError(self._complete("follow=True"))
        if not body["last"] or self._follow or self._body(number + 1) is not None:
            return False
        patterns, written = self._finder.patterns, self._finder.written
        if set(body.get("patterns", patterns)) != set(patterns) and set(body["written"]) != set(written):
            raise PipelineError(self._complete(f"a change of its patterns ({', '.join(body['written'])})"))
        return True

    def _complete(self, change: str) -> str:
        return (
            f"source {self._folder.rpartition('/')[2]!r}: its list of files is complete, so {change} would leave files "
            "out; undo the change, and add a source with another name for other files"
        )

    def _body(self, number: int) -> dict[str, Any] | None:
        name = self._name(number)
        where = self._objects.where(name)
        try:
            stored = self._objects.read(name)
        except Missing:
            return None
        body: dict[str, Any] = json.loads(next(parts_of(stored, where)))
        if body["format"] != FORMAT:
            raise CorruptData(f"{where} has format {body['format']}, not {FORMAT}; use a new --state-dir")
        if body["partitions"] != self._partitions:
            raise PipelineError(
                f"{self._objects.where(self._folder)} was started with partitions={body['partitions']}, but "
                f"FilesSource has {self._partitions}; set partitions={body['partitions']}, or use a new --state-dir"
            )
        return body

    def look(self, number: int) -> bool:
        """Write listing `number` if there are new files or it is the last one; return whether the listing exists.

        Raises:
            OperatorFailed: too many files match.
            Unavailable: the directory, the disk or the store does not respond.
        """
        self._remember(number)
        if self._looked_up_to > number:
            return True
        fresh = self._new_files()
        if not fresh and self._follow and not self._closed:
            return False
        self._write(number, fresh)
        self._remember(number + 1)
        return True

    def _remember(self, up_to: int) -> None:
        while self._looked_up_to <= up_to:
            body = self._body(self._looked_up_to)
            if body is None:
                return
            self._known.update(_mark(path) for path, _, _ in body["files"])
            self._known.update(map(_mark, body.get("real", {}).values()))
            self._files += len(body["files"])
            self._closed = body["last"]
            self._looked_up_to += 1

    def _new_files(self) -> list[Fresh]:
        fresh: dict[str, Fresh] = {}
        for file in self._finder.fresh(lambda path: _mark(path) in self._known):
            fresh[file.path] = file
            if self._files + len(fresh) > FILES_MAX:
                raise OperatorFailed(
                    f"more than {FILES_MAX:,} files match {', '.join(self._finder.patterns)}; narrow the pattern, or "
                    "start again with a new --state-dir"
                )
        return sorted(fresh.values(), key=lambda file: os.fsencode(file.path))

    def _write(self, number: int, files: Sequence[Fresh]) -> None:
        body = {
            "format": FORMAT,
            "partitions": self._partitions,
            "first": self._files,
            "last": not self._follow,
            "patterns": list(self._finder.patterns),
            "written": list(self._finder.written),
            "files": [(file.path, file.size, file.version) for file in files],
            "real": {str(place): file.real for place, file in enumerate(files) if file.real != file.path},
        }
        # If another process was first, its listing is valid.
        self._objects.create(self._name(number), packed_parts([json.dumps(body).encode()]))

    def _name(self, number: int) -> str:
        return f"{self._folder}/{PREFIX}{number:010d}"


def _mark(path: str) -> int:
    return xxhash.xxh3_128_intdigest(os.fsencode(path))
