"""The source of entries of Redis streams, `RedisStreamSource`: read in place, each entry exactly once, in order.

Nothing is copied: checkpoints keep ids. Consumer groups decide nothing, and nothing is written to the server.

Needs redis-py 5.0.8 (extra `redis`) and Redis 6.2 or later.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causal.errors import PipelineError, Unavailable
from operators.graph import caller
from operators.sinks.contract.options import WAIT_MS_MAX, check_range
from operators.sinks.redis.redis_address import check_address, place_of, require_redis
from operators.source import PartitionReader, Source, SourceContext
from operators.sources.beginnings import lend_beginnings
from operators.sources.payloads import plain_decoder
from operators.stage.unreadable import SET_ASIDE

if TYPE_CHECKING:
    from operators.sources.redis.redis_stream import Stream

STARTS = ("earliest", "latest")
STREAMS_MAX = 1000
ENTRY_BYTES_MAX = 15 << 20
_EPOCH = datetime.fromtimestamp(0, UTC)


class RedisStreamSource(Source[Any]):
    """A source of the entries of a stream, each exactly once; of several streams, each is a partition of the source.

    Args:
        url: "redis://host:6379/0", "rediss://…" (TLS) or "unix:///path/to/socket".
        stream: the key of the stream, or a list of keys. A stream need not exist yet.
        decode: "text", "json", "bytes", or a pure function of a value's bytes.
        field: the field whose value is the record; by default, a record is a dict of all fields.
        start: where a new job begins: "earliest", "latest", or a time (a datetime; UTC if naive) by the ids.
        with_metadata: whether records are dicts of `value`, `id`, `timestamp` (seconds, the first part of the id) and
            `stream`.
        entry_bytes_max: the maximum size of an entry; a larger one is not a record.
        timeout_ms: the time limit of each request.
    """

    may_be_unreadable = True
    bad_input_remedy = SET_ASIDE.replace("lines", "entries")

    def __init__(
        self,
        url: str,
        stream: str | Sequence[str],
        decode: str | Callable[[bytes], Any] = "text",
        start: str | datetime = "earliest",
        *,
        field: str | None = None,
        with_metadata: bool = False,
        entry_bytes_max: int = ENTRY_BYTES_MAX,
        timeout_ms: int = 1000,
    ) -> None:
        self._said = said = f"{caller()}: RedisStreamSource"
        check_address(said, url)
        self.streams = (stream,) if isinstance(stream, str) else tuple(stream)
        if not all(type(key) is str and key for key in self.streams) or not 1 <= len(self.streams) <= STREAMS_MAX:
            raise PipelineError(f"{said}: stream is {stream!r:.100}; use the key of a stream, or a list of keys")
        if len(set(self.streams)) < len(self.streams):
            raise PipelineError(f"{said}: a stream is named twice; name each once")
        if start not in STARTS and not isinstance(start, datetime):
            raise PipelineError(f"{said}: start is {start!r}; use 'earliest', 'latest' or a datetime")
        if field is not None and (type(field) is not str or not field):
            raise PipelineError(f"{said}: field is {field!r}; use the name of a field, or None for all fields")
        check_range(said, "entry_bytes_max", entry_bytes_max, 1, 1 << 30)
        check_range(said, "timeout_ms", timeout_ms, 1, WAIT_MS_MAX)
        self.partitions = len(self.streams)
        self.start = _first_ms(start) if isinstance(start, datetime) else start
        self._url = url
        self._options = (plain_decoder(said, decode), field, with_metadata, entry_bytes_max, timeout_ms)

    def check(self) -> None:
        """Raise `PipelineError` for mistakes in the url, the user's permissions or the type of a key.

        An unavailable server is no error here, only a line: the job will wait for it.
        """
        require_redis("RedisStreamSource")
        from operators.sources.redis.redis_stream import check_stream

        try:
            for partition in range(self.partitions):
                check_stream(self._stream(partition))
        except Unavailable as problem:
            print(f"{self._said}: {problem}; the job waits for it", file=sys.stderr, flush=True)

    def check_readable(self, partition: int, position: int, context: SourceContext) -> None:
        """Raise `PipelineError` if entries from `position` on were trimmed."""
        from operators.sources.redis.redis_stream import check_continues

        if context.mark is not None:
            check_continues(self._stream(partition), str(context.mark))

    def lend(self, name: str, job_directory: Path, elsewhere: Path) -> bool:
        """Copy the places at which the job began to read."""
        lend_beginnings(name, job_directory, elsewhere)
        return True

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        """Return a reader of one stream, which connects at its first read."""
        from operators.sources.redis.redis_stream_reader import RedisStreamReader

        return RedisStreamReader(self._stream(partition), partition, context)

    def _stream(self, partition: int) -> Stream:
        from operators.sources.redis.redis_stream import Stream

        return Stream(self._url, place_of(self._url), self.streams[partition], self.start, *self._options)


def _first_ms(start: datetime) -> int:
    """Return the first millisecond that is not before `start`."""
    aware = start.replace(tzinfo=UTC) if start.tzinfo is None else start
    return max(0, -((_EPOCH - aware) // timedelta(milliseconds=1)))
