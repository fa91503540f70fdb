"""The files of a source in an order that is decided once, by a journal of listings in the job directory.

A listing is a sorted list of files that no earlier listing contains, linked under the next number. If several processes
create a listing at the same moment, one of them wins, and all of them read its listing. File i of all listings belongs
to partition i modulo the number of partitions. Neither the order in which a directory is listed nor a file that appears
in the meantime changes the decision.

A listing that is created while files are not followed is the last one. If a later version of the job does not follow
files either, it must have the patterns of that listing. If it follows files, it continues after that listing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from causal.errors import CorruptData, DeterminantsLost, OperatorFailed, PipelineError, Unavailable
from causal.storage.files import make_directory, read_parts, sync_directory, write_parts
from operators.records.seconds import ns_of_seconds
from operators.sources.files.matching import denied, matches, regular

FILES_MAX = 1_000_000
"""The most files that one source takes: their names are remembered, about 100 bytes each."""
FORMAT = 1
PREFIX = "listing-"
RESTORE = "restore the original, or start again with a new --state-dir"


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as it was when it was listed.

    Attributes:
        number: the index of the file among all of the source's files.
    """

    path: str
    size: int
    mtime_ns: int
    number: int

    @property
    def shown(self) -> str:
        """The path as text that can be printed and encoded."""
        return os.fsencode(self.path).decode("utf-8", "replace")

    def check(self, now: os.stat_result) -> None:
        """Raise an error if the given status differs from that in the listing.

        Raises:
            DeterminantsLost: the file has changed.
        """
        if (now.st_size, now.st_mtime_ns) != (self.size, self.mtime_ns):
            change = f"it had {self.size:,} bytes and now has {now.st_size:,}"
            if now.st_size == self.size:
                change = "its modification time has changed"
            raise DeterminantsLost(f"{self.shown} has changed since the job listed it: {change}; {RESTORE}")

    def check_path(self) -> None:
        """Raise an error if the file at the path differs from that in the listing.

        Raises:
            DeterminantsLost: the file has changed or was removed.
            OperatorFailed: the job's user may not read the file.
            Unavailable: the file cannot be inspected now.
        """
        try:
            self.check(os.stat(self.path))
        except FileNotFoundError:
            raise DeterminantsLost(
                f"{self.shown} is missing, but the job has not finished reading it; {RESTORE}"
            ) from None
        except PermissionError as problem:
            raise OperatorFailed(denied(self.shown, problem)) from None
        except OSError as problem:
            raise Unavailable(f"{self.shown}: {problem}") from problem


@dataclass(frozen=True, slots=True)
class Listing:
    """One listing: files of all partitions, and whether the listing is the last one."""

    files: tuple[Listed, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class _Fresh:
    """A file that is not in any listing yet; `real` is its path without symbolic links."""

    path: str
    size: int
    mtime_ns: int
    real: str


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file's status, and the time on this machine's monotonic clock since which the status has been unchanged."""

    size: int
    mtime_ns: int
    since_ns: int


class FileJournal:
    """The listings of one source, which any number of processes may read and continue.

    Args:
        directory: `<job directory>/file-listings/<source>`.
        patterns: absolute paths or globs.
        follow: whether new files are added as they appear; otherwise, the next listing is the last.
        quiet_s: how long a new file must remain unmodified before it is added; used only if files are followed.
        written: the patterns as written in the pipeline, which stay the same when its directory is moved.
    """

    def __init__(
        self,
        directory: Path,
        patterns: Sequence[str],
        partitions: int,
        follow: bool = False,
        quiet_s: float = 1.0,
        written: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self._patterns = patterns
        self._written = written or patterns
        self._partitions = partitions
        self._follow = follow
        self._quiet_s = quiet_s
        self._known: set[int] = set()
        self._files = 0
        self._seen: dict[str, _Seen] = {}
        self._looked_up_to = 0  # the number of listings whose files are in `_known`
        self._closed = False  # whether the latest of these listings was meant to be the last

    def listing(self, number: int) -> Listing | None:
        """Return the listing with the given number, or None if it does not exist yet.

        Raises:
            CorruptData: the listing is damaged.
            PipelineError: the list is complete and the options differ, or the number of partitions differs.
        """
        body = self._body(number)
        if body is None:
            return None
        files = tuple(
            Listed(path, size, mtime_ns, place)
            for place, (path, size, mtime_ns) in enumerate(body["files"], body["first"])
        )
        return Listing(files, self._ends(number, body))

    def check_resumed(self, rolled_back: bool) -> None:
        """Raise an error if a job is resumed with options that contradict the list of files.

        Args:
            rolled_back: whether the job resumes the savepoint's version, so that listings of later versions are
                ignored.
        Raises:
            CorruptData: a listing is damaged.
            PipelineError: the list is complete, and the options contradict it or match other files.
        """
        numbers = [int(path.name.removeprefix(PREFIX)) for path in self.directory.glob(f"{PREFIX}*")]
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
        if not body["last"] or self._follow or self._path(number + 1).exists():
            return False
        if set(body.get("patterns", self._patterns)) != set(self._patterns) and set(body["written"]) != set(
            self._written
        ):
            raise PipelineError(self._complete(f"a change of its patterns ({', '.join(body['written'])})"))
        return True

    def _complete(self, change: str) -> str:
        return (
            f"source {self.directory.name!r}: its list of files is complete, so {change} would leave files out; "
            "undo the change, and add a source with another name for other files"
        )

    def _body(self, number: int) -> dict[str, Any] | None:
        file = self._path(number)
        if not file.exists():
            return None
        body: dict[str, Any] = json.loads(read_parts(file)[0])
        if body["format"] != FORMAT:
            raise CorruptData(f"{file} has format {body['format']}, not {FORMAT}; use a new --state-dir")
        if body["partitions"] != self._partitions:
            raise PipelineError(
                f"{self.directory} was started with partitions={body['partitions']}, but FilesSource has "
                f"{self._partitions}; set partitions={body['partitions']}, or use a new --state-dir"
            )
        return body

    def look(self, number: int) -> bool:
        """Write listing `number` if there are new files or it is the last one; return whether the listing exists.

        Raises:
            OperatorFailed: too many files match.
            Unavailable: the directory or the disk does not respond.
        """
        try:
            self._remember(number)
            if self._looked_up_to > number:
                return True
            fresh = self._new_files()
            if not fresh and self._follow and not self._closed:
                return False
            self._write(number, fresh)
        except OSError as problem:
            raise Unavailable(f"{self.directory}: {problem}") from problem
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

    def _new_files(self) -> list[_Fresh]:
        fresh: list[_Fresh] = []
        seen, self._seen = self._seen, {}
        for match in matches(self._patterns):
            if _mark(match.path) in self._known or _mark(match.real) in self._known:
                continue
            known = regular(match.path)
            if known is None or (self._follow and not self._is_quiet(match.path, known, seen.get(match.path))):
                continue
            fresh.append(_Fresh(match.path, known.st_size, known.st_mtime_ns, match.real))
            if self._files + len(fresh) > FILES_MAX:
                raise OperatorFailed(
                    f"more than {FILES_MAX:,} files match {', '.join(self._patterns)}; narrow the pattern, or "
                    "start again with a new --state-dir"
                )
        return fresh

    def _is_quiet(self, path: str, known: os.stat_result, seen: _Seen | None) -> bool:
        """Return whether a file has been unmodified for `quiet_s`.

        The file's modification time decides or, because that time may be wrong, this machine's monotonic clock.
        """
        quiet_ns, now_ns = ns_of_seconds(self._quiet_s), time.monotonic_ns()
        if 0 <= time.time_ns() - known.st_mtime_ns >= quiet_ns:
            return True
        if seen is None or (seen.size, seen.mtime_ns) != (known.st_size, known.st_mtime_ns):
            seen = _Seen(known.st_size, known.st_mtime_ns, now_ns)
        self._seen[path] = seen
        return now_ns - seen.since_ns >= quiet_ns

    def _write(self, number: int, files: Sequence[_Fresh]) -> None:
        body = {
            "format": FORMAT,
            "partitions": self._partitions,
            "first": self._files,
            "last": not self._follow,
            "patterns": list(self._patterns),
            "written": list(self._written),
            "files": [(file.path, file.size, file.mtime_ns) for file in files],
            "real": {str(place): file.real for place, file in enumerate(files) if file.real != file.path},
        }
        make_directory(self.directory, durable=True)
        path = self._path(number)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        write_parts(aside, [json.dumps(body).encode()], durable=True)
        try:
            os.link(aside, path)
        except FileExistsError:
            pass  # another process was first, and its listing is valid
        finally:
            aside.unlink(missing_ok=True)
        sync_directory(self.directory)

    def _path(self, number: int) -> Path:
        return self.directory / f"{PREFIX}{number:010d}"


def _mark(path: str) -> int:
    return xxhash.xxh3_128_intdigest(os.fsencode(path))
