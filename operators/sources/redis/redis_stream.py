"""A Redis stream: its entries as records, and the proof that nothing is missing between two reads.

A mark finds the entry that comes next:

    "1700000000000-3"     it is the one with this id
    ">1700000000000-3"    it is the first one after this id, whose entry was read last

Each request asks for entries from the mark's own entry on. Streams are trimmed from their beginning, so if that one is
there, nothing after it was trimmed; if it is not, others may have gone with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import redis

from causal.errors import DeterminantsLost, PipelineError, invariant
from causal.records.unreadable import Unreadable
from operators.sinks.redis.redis_errors import client_of, translated
from operators.sources.payloads import Decode, decoded, unreadable

AFTER = ">"
ZERO = "0-0"

Entry = tuple[str, Mapping[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream, and how its entries become records; see `RedisStreamSource`."""

    url: str = field(repr=False)
    place: str
    key: str
    start: str | int
    decode: Decode
    only: str | None
    with_metadata: bool
    entry_bytes_max: int
    timeout_ms: int

    @property
    def where(self) -> str:
        """The name of the stream for messages."""
        return f"{self.place}: stream {self.key}"

    def record(self, entry: Entry) -> Any:
        """Return the record of an entry, or an `Unreadable`."""
        id_, fields = entry
        where, size = f"{self.key}@{id_}", size_of(fields)
        if size > self.entry_bytes_max:
            why = f"an entry of {size:,} bytes (entry_bytes_max is {self.entry_bytes_max:,})"
            return unreadable(where, why, next(iter(fields.values())))
        value = self._value(fields, where)
        if type(value) is Unreadable or not self.with_metadata:
            return value
        return {"value": value, "id": id_, "timestamp": numbers(id_)[0] / 1000, "stream": self.key}

    def _value(self, fields: Mapping[bytes, bytes], where: str) -> Any:
        if self.only is not None:
            payload = fields.get(self.only.encode())
            if payload is None:
                return unreadable(where, f"it has no field {self.only!r}", b" ".join(fields))
            return decoded(self.decode, payload, where)
        value = {}
        for raw, payload in fields.items():
            name, each = decoded(bytes.decode, raw, where), decoded(self.decode, payload, where)
            if type(name) is Unreadable or type(each) is Unreadable:
                return name if type(name) is Unreadable else each
            value[name] = each
        return value

    @contextmanager
    def errors_translated(self) -> Iterator[None]:
        """Raise the project's errors instead of those of redis-py."""
        try:
            yield
        except redis.RedisError as problem:
            raise translated(problem, self.where, effect="") from None

    def entries(self, client: redis.Redis, first: str, count: int) -> list[Entry]:
        """Return up to `count` entries from the id `first` on, or after it if it begins with "("."""
        with self.errors_translated():
            entries: Any = client.xrange(self.key, min=first, count=count)
        return [(id_.decode(), fields) for id_, fields in entries]

    def last_id(self, client: redis.Redis) -> str:
        """Return the id of the last entry that was ever added; `ZERO` if there is no such stream."""
        with self.errors_translated():
            try:
                info: Any = client.xinfo_stream(self.key)
            except redis.ResponseError as problem:
                if "no such key" not in str(problem):
                    raise
                return ZERO
        last: str = info["last-generated-id"].decode()
        return last

    def bound(self, client: redis.Redis) -> str:
        """Return the id after which a new job begins."""
        if isinstance(self.start, int):
            return f"{self.start - 1}-{2**64 - 1}" if self.start > 0 else ZERO
        return ZERO if self.start == "earliest" else self.last_id(client)

    def continued(self, client: redis.Redis, mark: str, count: int) -> list[Entry]:
        """Return up to `count` entries that follow a mark, which begin with the one of the mark itself, if it was read.

        Raises:
            DeterminantsLost: entries after the mark may have been removed.
        """
        id_ = mark.removeprefix(AFTER)
        entries = self.entries(client, id_, count)
        if entries and entries[0][0] == id_:
            return entries
        last = entries[-1][0] if entries else self.last_id(client)
        if not entries and last == id_ and mark != id_:
            return []  # the entry that was read last was deleted, and nothing has followed it
        raise DeterminantsLost(f"{self.where}: {_loss(mark, id_, entries, last)}")


def _loss(mark: str, id_: str, entries: Sequence[Entry], last: str) -> str:
    if numbers(last) < numbers(id_):
        return (
            f"it ends at {last}, but the job has read up to {id_}: it was created again, or the server has lost its "
            "last entries; start a new job"
        )
    gone = f"up to {entries[0][0]}" if entries else "up to its end"
    what = (
        f"entry {id_}, which the job has read last, is gone, and with it perhaps others {gone}"
        if mark != id_
        else f"the entries from {id_} on, {gone}, are gone, and the job has not processed them"
    )
    return f"{what}: MAXLEN, XTRIM or XDEL has removed them; keep more, and start a new job"


def check_stream(stream: Stream) -> None:
    """Raise `PipelineError` if the url cannot be used, or the key cannot be read as a stream."""
    try:
        client = client_of(stream.url, stream.timeout_ms)
        if client.connection_pool.connection_kwargs.get("decode_responses"):
            raise PipelineError(f"{stream.place}: leave decode_responses out of the url; pass decode= instead")
        try:
            stream.last_id(client)
            stream.entries(client, "(" + ZERO, 1)
        finally:
            client.close()
    except (TypeError, ValueError) as problem:  # the url has an unknown option or an invalid host
        raise PipelineError(f"{stream.place}: its url cannot be used ({problem}); correct the url") from None


def check_continues(stream: Stream, mark: str) -> None:
    """Raise `PipelineError` unless a stream still has the entries that follow a mark."""
    client = client_of(stream.url, stream.timeout_ms)
    try:
        stream.continued(client, mark, 1)
    except DeterminantsLost as problem:
        raise PipelineError(str(problem)) from None
    finally:
        client.close()


def numbers(id_: str) -> tuple[int, int]:
    """Return the two numbers of an id, which order entries."""
    first, _, second = id_.partition("-")
    invariant(bool(second), "an id has two numbers", id=id_)
    return int(first), int(second)


def size_of(fields: Mapping[bytes, bytes]) -> int:
    """Return the number of bytes of an entry."""
    return sum(len(name) + len(value) for name, value in fields.items())
