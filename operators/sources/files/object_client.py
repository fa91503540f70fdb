"""A client of one bucket that lists objects, and reads ranges of those whose ETag is the one that was listed.

Credentials and endpoints come from the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`), unless options replace them.
Errors have one line without secrets: neither options nor the query of a URL are in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from causal.errors import CausalError, DeterminantsLost, OperatorFailed, PipelineError, Unavailable
from causal.storage.shared import line_of
from operators.sources.files.listed import RESTORE
from operators.sources.files.object_patterns import SCHEMES

RETRY_S = 5.0
"""The time for which the client repeats a request before the store counts as unavailable."""
TIMEOUTS = {"connect_timeout": "5 seconds", "timeout": "60 seconds"}
"""The limits of one request; a range is read within it even if the store sends 70 KB/s."""
KEYS_AT_ONCE = 1000
_QUERY = re.compile(r"\?[^\s)\"']+")
_MESSAGE = re.compile(r"<Message>(.*?)</Message>", re.DOTALL)
_STATUS = re.compile(r"status code: (\d{3})")


class Entry(NamedTuple):
    """An object that a store has listed."""

    key: str
    size: int
    etag: str


class ObjectClient:
    """A client of a bucket; it starts threads, so the process must not fork afterwards.

    Args:
        store: the URL of the bucket.
        options: settings of the client that take precedence over the environment.

    Raises:
        PipelineError: an option is unknown, or one is missing.
    """

    def __init__(self, store: str, options: Mapping[str, str]) -> None:
        import obstore
        import obstore.store

        self.store = store
        self._api = obstore
        scheme, _, bucket = store.partition("://")
        make = getattr(obstore.store, SCHEMES[scheme])
        retries = {"retry_timeout": timedelta(seconds=RETRY_S)}
        try:
            self._client = make(bucket, config={**TIMEOUTS, **options}, retry_config=retries)
        except (obstore.exceptions.BaseError, OSError, TypeError, ValueError) as problem:
            raise PipelineError(
                f"{store} cannot be used: {_line(problem)}; correct options= or the variables"
            ) from None

    def below(self, folder: str) -> Iterator[Entry]:
        """Yield the objects below a folder, except those without a byte, such as the folders that consoles create.

        Raises:
            OperatorFailed: the credentials do not permit it.
            Unavailable: the store does not answer, or there is no such bucket.
        """
        try:
            for page in self._api.list(self._client, folder or None, chunk_size=KEYS_AT_ONCE):
                for meta in page:
                    if meta["size"]:
                        yield entry_of(self.store, meta)
        except Exception as problem:
            raise self._failed(f"{self.store}/{folder}", "listed", problem) from None

    def look_at(self, key: str) -> Entry | None:
        """Return an object, or None if there is none; the errors are those of `below`."""
        try:
            return entry_of(self.store, self._api.head(self._client, key))
        except FileNotFoundError:
            return None
        except Exception as problem:
            raise self._failed(f"{self.store}/{key}", "looked at", problem) from None

    def read(self, entry: Entry, start: int, stop: int) -> bytes:
        """Return the bytes of an object in a range, which is not empty and ends within the object.

        Raises:
            DeterminantsLost: the object has another ETag, or is gone.
            OperatorFailed: the credentials do not permit it.
            Unavailable: the store does not answer.
        """
        url = f"{self.store}/{entry.key}"
        try:
            answer = self._api.get(self._client, entry.key, options={"range": (start, stop), "if_match": entry.etag})
            now = entry_of(self.store, answer.meta)
            if now != entry:
                raise changed(url, entry, now)
            data = bytes(answer.bytes())
        except FileNotFoundError:
            raise DeterminantsLost(f"{url} is missing, but the job has not finished reading it; {RESTORE}") from None
        except self._api.exceptions.PreconditionError:
            raise changed(url, entry, self.look_at(entry.key)) from None
        except Exception as problem:
            raise self._failed(url, "read", problem) from None
        if len(data) != stop - start:
            raise Unavailable(f"{url}: the store has sent {len(data):,} bytes of {stop - start:,}")
        return data

    def _failed(self, url: str, done: str, problem: Exception) -> Exception:
        """Return the project's error for one of the client."""
        errors, status = self._api.exceptions, _STATUS.search(str(problem))
        code = status[1] if status is not None else ""  # of a list, the client's error has no other class
        if isinstance(problem, CausalError):
            return problem
        if code in ("401", "403") or isinstance(problem, (errors.PermissionDeniedError, errors.UnauthenticatedError)):
            return OperatorFailed(
                f"{url} cannot be {done}: permission denied ({_line(problem)}); grant the job's credentials permission "
                "to list and read there, then resume"
            )
        if isinstance(problem, (errors.InvalidPathError, errors.NotSupportedError)):
            return OperatorFailed(f"{url} cannot be {done}: {_line(problem)}; rename the object")
        if isinstance(problem, (OSError, ValueError, errors.BaseError)):
            return Unavailable(f"{url} cannot be {done}: {_line(problem)}")
        return problem


def entry_of(store: str, meta: Mapping[str, Any]) -> Entry:
    """Return the object that the client describes, with its ETag in quotes, which Azure leaves out in its lists."""
    etag = meta["e_tag"]
    if not etag:
        raise OperatorFailed(f"{store} gives no ETags, by which changed objects are known; use another store")
    return Entry(meta["path"], meta["size"], etag if etag.endswith('"') else f'"{etag}"')


def changed(url: str, entry: Entry, now: Entry | None) -> DeterminantsLost:
    """Return the error for an object that is not the one that was listed."""
    if now is None:
        return DeterminantsLost(f"{url} is missing, but the job has not finished reading it; {RESTORE}")
    change = f"its ETag was {entry.etag} and now is {now.etag}"
    if now.size != entry.size:
        change = f"it had {entry.size:,} bytes and now has {now.size:,}"
    return DeterminantsLost(f"{url} has changed since the job listed it: {change}; {RESTORE}")


def _line(problem: Exception) -> str:
    """Return the client's error as one line: of the body of a store's answer only the message, of a URL no query."""
    text, _, body = str(problem).partition("Debug source:")[0].partition("<?xml")
    message = _MESSAGE.search(body)
    return line_of(OSError(_QUERY.sub("", text) + (message[1] if message is not None else "")))
