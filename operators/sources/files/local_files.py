"""Local files: those that match patterns now, and what a listed one must still be when it is read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from causal.errors import DeterminantsLost, OperatorFailed, Unavailable
from operators.records.seconds import ns_of_seconds
from operators.sources.files.listed import RESTORE, Listed
from operators.sources.files.listing import Fresh
from operators.sources.files.matching import denied, matches, regular


class LocalFile(Listed):
    """A file of this host as it was when it was listed."""

    __slots__ = ()

    def open(self) -> BinaryIO:
        """Open the file, and check that it is unchanged."""
        self.verify()
        try:
            handle = open(self.path, "rb")
            self.check_status(os.fstat(handle.fileno()))
        except PermissionError as problem:
            raise OperatorFailed(denied(self.shown, problem)) from None
        except OSError as problem:
            raise Unavailable(f"{self.shown}: {problem}") from problem
        return handle

    def verify(self) -> None:
        """Raise an error if the file at the path differs from that in the listing."""
        try:
            self.check_status(os.stat(self.path))
        except FileNotFoundError:
            raise DeterminantsLost(
                f"{self.shown} is missing, but the job has not finished reading it; {RESTORE}"
            ) from None
        except PermissionError as problem:
            raise OperatorFailed(denied(self.shown, problem)) from None
        except OSError as problem:
            raise Unavailable(f"{self.shown}: {problem}") from problem

    def check_status(self, now: os.stat_result) -> None:
        """Raise `DeterminantsLost` if the given status differs from that in the listing."""
        if (now.st_size, now.st_mtime_ns) != (self.size, self.version):
            change = f"it had {self.size:,} bytes and now has {now.st_size:,}"
            if now.st_size == self.size:
                change = "its modification time has changed"
            raise DeterminantsLost(f"{self.shown} has changed since the job listed it: {change}; {RESTORE}")

    def check_end(self, position: int) -> None:
        """Raise `Unavailable` if the file ends early, as on a network file system."""
        if position != self.size:
            raise Unavailable(f"{self.shown} ends at byte {position:,} of {self.size:,}")


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file's status, and the time on this machine's monotonic clock since which the status has been unchanged."""

    size: int
    mtime_ns: int
    since_ns: int


class LocalFiles:
    """A `Finder` of local files.

    Args:
        patterns: absolute paths or globs.
        written: the patterns as written in the pipeline, which stay the same when its directory is moved.
        quiet_s: how long a new file must remain unmodified before it is taken; None for no time.
    """

    def __init__(self, patterns: Sequence[str], written: Sequence[str] = (), quiet_s: float | None = None) -> None:
        self.patterns = patterns
        self.written = written or patterns
        self._quiet_s = quiet_s
        self._seen: dict[str, _Seen] = {}

    def fresh(self, is_known: Callable[[str], bool]) -> Iterator[Fresh]:
        """Yield the files that match and are not known."""
        seen, self._seen = self._seen, {}
        try:
            for match in matches(self.patterns):
                if is_known(match.path) or is_known(match.real):
                    continue
                status = regular(match.path)
                if status is not None and self._is_quiet(match.path, status, seen.get(match.path)):
                    yield Fresh(match.path, status.st_size, status.st_mtime_ns, match.real)
        except OSError as problem:
            raise Unavailable(f"{', '.join(self.patterns)}: {problem}") from problem

    def listed(self, path: str, size: int, version: int | str, number: int) -> LocalFile:
        """Return an entry of a listing."""
        return LocalFile(path, size, version, number)

    def _is_quiet(self, path: str, status: os.stat_result, seen: _Seen | None) -> bool:
        """Return whether a file has been unmodified for `quiet_s`.

        The file's modification time decides or, because that time may be wrong, this machine's monotonic clock.
        """
        if self._quiet_s is None:
            return True
        quiet_ns, now_ns = ns_of_seconds(self._quiet_s), time.monotonic_ns()
        if 0 <= time.time_ns() - status.st_mtime_ns >= quiet_ns:
            return True
        if seen is None or (seen.size, seen.mtime_ns) != (status.st_size, status.st_mtime_ns):
            seen = _Seen(status.st_size, status.st_mtime_ns, now_ns)
        self._seen[path] = seen
        return now_ns - seen.since_ns >= quiet_ns
