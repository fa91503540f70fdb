"""The storage that all hosts of a job share: objects that are created once and never changed (D17).

The same code serves a directory (`file:///…`, on storage that all hosts mount) and S3 (`s3://bucket/prefix`, with the
credentials and endpoint from the environment, as in other programs). The only possible race is between two creations of
the same name: one succeeds, and the other is informed.

A directory that is moved or unmounted while a job runs must not be created again as an empty directory. It is
`Unavailable` until it is restored. It is recognised by its device and inode or, because a mount may change these, by
its `proof`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlsplit

from causal.errors import CorruptData, PipelineError, Unavailable
from causal.storage.objects import OBJECT_BYTES_MAX, Missing, Objects

RETRY_S_MIN, RETRY_S_MAX = 0.1, 5.0
EXTRA = "hosts"
"""The package extra that installs the client library."""

READERS = 8
"""The maximum number of objects that are read concurrently."""

Result = TypeVar("Result")

_log = logging.getLogger("causal.depot")


class Depot(Objects):
    """One job's objects below a prefix in a shared store.

    Args:
        url: `file:///DIRECTORY` or `s3://BUCKET/PREFIX`.
        prefix: the prefix of all names; no other job uses it.
        proof: the name of an object or folder that has existed in the directory since the job began ("" for the job's
            prefix), so that a directory without it is recognised as a different one. With None, the directory is
            created, and only that directory is accepted from then on.
        retry_s: the time for which the client repeats a request before the store is considered unavailable.
        options: settings of the client that take precedence over the environment (`AWS_…`).

    Raises:
        PipelineError: the URL does not denote a store, or the store's client is not installed.
    """

    def __init__(
        self,
        url: str,
        prefix: str,
        retry_s: float = 10.0,
        proof: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.url = url
        self._options = options or {}
        self.proof = proof
        self._prefix = PurePosixPath(prefix)
        self._root = urlsplit(url).path if url.startswith("file:") else ""
        self._seen: os.stat_result | None = None
        self._retry_s = retry_s
        self._client: Any = None
        if proof is None or not self._root:
            self._client = _client(url, retry_s, self._options)
            self._seen = os.stat(self._root) if self._root else None
        import obstore

        self._api = obstore

    @property
    def _store(self) -> Any:
        """The client, after a check that the directory exists; the errors are those of `_check_root`."""
        self._check_root()
        return self._client

    def _check_root(self) -> None:
        """Raise `Unavailable` if the directory is missing or has been replaced by a different one."""
        if not self._root:
            return
        try:
            now = os.stat(self._root)
            if self._seen is None or not os.path.samestat(now, self._seen):
                if self.proof is None:
                    raise FileNotFoundError
                os.stat(Path(self._root, self._prefix, self.proof))
                self._client, self._seen = _client(self.url, self._retry_s, self._options), now
        except (FileNotFoundError, NotADirectoryError):
            raise Unavailable(
                f"{self.url} was moved, replaced or deleted while the job was running; put it back"
            ) from None
        except OSError as problem:
            raise self._unavailable("it", "looked at", problem) from None

    def where(self, name: str) -> str:
        """Return the store and the path of an object or folder in it."""
        return f"{self.url}: {self._path(name)}"

    def create(self, name: str, data: bytes | memoryview, durable: bool = True) -> bool:
        """Create an object; return whether it is new.

        An existing object may come from an earlier attempt by this writer whose answer was lost; read and compare it.

        Raises:
            PipelineError: the object is too large to be read back.
            Unavailable: the store does not answer; the object may have been created, or be created later.
        """
        if len(data) > OBJECT_BYTES_MAX:
            raise PipelineError(
                f"{self.url}: {self._path(name)} has {len(data):,} bytes, but at most {OBJECT_BYTES_MAX:,} can "
                "be read back; raise the parallelism of the operator that writes it"
            )
        try:
            self._api.put(self._store, self._path(name), bytes(data), mode="create")
            self._check_root()  # the client recreates a directory that has been moved in the meantime
            return True
        except self._api.exceptions.AlreadyExistsError:
            return False
        except (OSError, self._api.exceptions.BaseError) as problem:
            raise self._unavailable(name, "written", problem) from None

    def create_own(self, name: str, data: bytes) -> None:
        """Create an object whose name only this writer may use; a second attempt with the same content is accepted.

        Raises:
            CorruptData: the object exists with different content.
            Unavailable: the store does not answer.
        """
        if not self.create(name, data) and self.read(name) != data:
            raise CorruptData(
                f"{self.url}: {self._path(name)} exists with different content; another job writes to this place"
            )

    def read(self, name: str) -> bytes:
        """Read an object.

        Raises:
            Missing: the object does not exist.
            CorruptData: the object is larger than any object that this class creates.
            Unavailable: the store does not answer.
        """
        try:
            answer = self._api.get(self._store, self._path(name))
            if (size := answer.meta["size"]) > OBJECT_BYTES_MAX:
                raise CorruptData(
                    f"{self.url}: {self._path(name)} has {size:,} bytes, but at most {OBJECT_BYTES_MAX:,} are "
                    "read; another program wrote it"
                )
            return bytes(answer.bytes())
        except (FileNotFoundError, self._api.exceptions.NotFoundError):
            raise Missing(f"{self.url}: {self._path(name)} is missing; restore it from a copy") from None
        except (OSError, self._api.exceptions.BaseError) as problem:
            raise self._unavailable(name, "read", problem) from None

    def read_all(self, names: Sequence[str]) -> list[bytes]:
        """Read several objects, some of them concurrently; the errors are those of `read`."""
        if len(names) < 2:
            return [self.read(name) for name in names]
        with ThreadPoolExecutor(min(READERS, len(names))) as readers:
            return list(readers.map(self.read, names))

    def sizes(self, folder: str, after: str = "") -> dict[str, int]:
        """Return the size in bytes of each object below a folder, by name; `after` is as in `Objects.sizes`.

        Raises:
            Unavailable: the store does not answer.
        """
        place = self._path(folder) + "/"
        try:
            pages = list(self._api.list(self._store, place, offset=place + after if after else None))
        except (OSError, self._api.exceptions.BaseError) as problem:
            raise self._unavailable(folder, "listed", problem) from None
        entries = (entry for page in pages for entry in page)
        return {str(PurePosixPath(entry["path"]).relative_to(self._prefix)): entry["size"] for entry in entries}

    def folders(self) -> list[str]:
        """Return the names of the folders directly below the prefix, in sorted order.

        Raises:
            Unavailable: the store does not answer.
        """
        try:
            page = self._api.list_with_delimiter(self._store, str(self._prefix) + "/")
        except (OSError, self._api.exceptions.BaseError) as problem:
            raise self._unavailable("", "listed", problem) from None
        return sorted(PurePosixPath(path).name for path in page["common_prefixes"])

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, in a single request if the store supports it; an object that remains only takes up space."""
        left = list(names)
        if len(left) > 1 and self.url.startswith("s3:"):
            try:
                self._api.delete(self._store, [self._path(name) for name in left])
                return
            except (OSError, self._api.exceptions.BaseError):
                _log.info("%s: %d objects are removed one by one", self.url, len(left))
        for name in left:
            try:
                self._api.delete(self._store, self._path(name))
            except (FileNotFoundError, self._api.exceptions.NotFoundError):
                continue
            except (OSError, Unavailable, self._api.exceptions.BaseError) as problem:
                _log.warning("%s: %s cannot be removed: %s", self.url, name, line_of(problem))

    def _path(self, name: str) -> str:
        return str(self._prefix / name)

    def _unavailable(self, name: str, done: str, problem: Exception) -> Unavailable:
        return Unavailable(f"store {self.url}: {name} cannot be {done}: {line_of(problem)}")


def insist(attempt: Callable[[], Result], report: Callable[[str], None], wanted: Callable[[], bool]) -> Result | None:
    """Repeat a request to an unavailable store, with increasing pauses, for as long as `wanted` returns true.

    Args:
        report: called with the problem after each failure, and with "" after the first success that follows a failure.

    Returns: the result, or None if the request is no longer wanted.
    """
    pause_s, failed = RETRY_S_MIN, False
    while wanted():
        try:
            result = attempt()
        except Unavailable as problem:
            report(str(problem))
            failed = True
            _sleep(pause_s, wanted)
            pause_s = min(2 * pause_s, RETRY_S_MAX)
            continue
        if failed:
            report("")
        return result
    return None


def _sleep(span_s: float, wanted: Callable[[], bool]) -> None:
    until = time.monotonic() + span_s
    while wanted() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, RETRY_S_MIN))


def _client(url: str, retry_s: float, options: Mapping[str, str]) -> Any:
    try:
        from obstore.store import LocalStore, S3Store
    except ImportError:
        raise PipelineError(
            f"a shared store needs a client; install it with: pip install 'causal-streams[{EXTRA}]'"
        ) from None
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        try:
            return LocalStore(parts.path, mkdir=True)
        except (OSError, ValueError) as problem:
            raise PipelineError(f"the store {url} cannot be used: {line_of(problem)}") from None
    if parts.scheme == "s3" and parts.netloc:
        retries: Any = {"retry_timeout": timedelta(seconds=retry_s)}
        prefix: Any = parts.path.strip("/") or None
        return S3Store(parts.netloc, prefix=prefix, retry_config=retries, config=dict(options))  # type: ignore[arg-type]
    raise PipelineError(f"{url} is not the URL of a store; use file:///DIRECTORY or s3://BUCKET/PREFIX")


def line_of(problem: Exception) -> str:
    """Return an error of the client as one line, without the places in its own code."""
    shown = str(problem).partition("Debug source:")[0]
    return " ".join(shown.split())[:300] or type(problem).__name__
