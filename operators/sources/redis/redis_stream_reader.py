"""The reader of one Redis stream: a position is a count of entries, and checkpoints keep marks (`redis_stream`).

Nothing is copied, and nothing is acknowledged: consumer groups are not used. The client is made at the first read, so
that no process inherits it; no request waits longer than `timeout_ms`.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_right
from operator import itemgetter

import redis

from causal.errors import DeterminantsLost, PipelineError, Unavailable
from operators.sinks.redis.redis_errors import client_of
from operators.source import Read, SourceContext
from operators.sources.beginnings import beginnings_of
from operators.sources.redis.redis_stream import AFTER, ZERO, Stream, numbers, size_of

POLL_S, POLL_QUIET_S, QUIET_S, AWAY_S = 0.002, 0.01, 1.0, 0.25
"""The pauses between two reads: of a stream that has entries, of one without any for `QUIET_S`, and after a failure."""
LOOK_S = 1.0
"""The interval between two looks at the end of the stream."""
FETCH, FETCH_MAX, FETCH_BYTES = 100, 10_000, 1 << 24
"""The entries that the first request asks for, and the bounds of later ones; their size is that of those before."""
PLACES_MAX = 4096
"""The most places to which a reader can return directly; of more, every second is let go."""


class RedisStreamReader:
    """A `PartitionReader` of one stream."""

    def __init__(self, stream: Stream, partition: int, context: SourceContext) -> None:
        self._stream = stream
        self._partition = partition
        self._context = context
        self._name = f"source {context.name!r}, partition {partition}"
        self._client: redis.Redis | None = None
        self._places: list[tuple[int, str]] = []
        """(position, mark) of places to which reading can return, in ascending order."""
        if context.mark is not None:
            self._places.append((context.position, str(context.mark)))
        self._next = -1
        """The position of the next record; -1 if the mark is not set."""
        self._mark = ""
        self._skips = 0
        """The number of entries to leave out, because they precede the position that was asked for."""
        self._fetch = FETCH
        self._answers = True
        """Whether the server has answered the last request, if there was one."""
        self._came_s = self._looked_s = time.monotonic()
        self._last = ZERO

    def read(self, position: int, count_max: int) -> Read | None:
        """Return up to `count_max` entries, or None while none are there.

        Raises:
            DeterminantsLost: entries from this position on may have been removed.
            PipelineError: the key is no stream, or may not be read.
            Unavailable: the server does not answer.
        """
        try:
            read = self._read(position, count_max)
        except Unavailable as problem:
            if self._answers:
                print(f"{self._name} waits: {problem}", file=sys.stderr, flush=True)
            self._answers = False
            raise
        self._answers = True
        return read

    def ready_in_s(self, position: int) -> float:
        """Return the pause until the next read is worthwhile."""
        if not self._answers:
            return AWAY_S
        return POLL_S if time.monotonic() - self._came_s < QUIET_S else POLL_QUIET_S

    def completed(self, position: int) -> None:
        """Forget places before `position`; the stream is left as it is."""
        del self._places[: max(0, bisect_right(self._places, position, key=itemgetter(0)) - 1)]

    def counters(self) -> dict[str, int | float]:
        """Return how far the ids of the stream reach beyond the last entry read: in ms, if the server gives the ids."""
        if self._client is None or self._next < 0:
            return {}
        self._look(self._client)
        read = self._mark.removeprefix(AFTER)
        if self._mark != read and numbers(self._last) <= numbers(read):
            return {"input_lag": 0}
        return {"input_lag": max(1, numbers(self._last)[0] - numbers(read)[0])}

    def close(self) -> None:
        """Close the client."""
        client, self._client, self._next = self._client, None, -1
        if client is not None:
            client.close()

    # ----------------------------------------------------------------------------------------------------------

    def _read(self, position: int, count_max: int) -> Read | None:
        client = self._opened()
        if not self._places:
            first = self._first(client)
            if first is None:
                return None
            self._places.append((0, first))
            if position == 0:
                return Read([], time.monotonic_ns(), marks=[first])
        if position != self._next:
            self._return_to(position)
        return self._taken(client, position, count_max)

    def _opened(self) -> redis.Redis:
        if self._client is None:
            self._client = client_of(self._stream.url, self._stream.timeout_ms)
        return self._client

    def _first(self, client: redis.Redis) -> str | None:
        """Return the id of the first entry of the job, which is decided once; None while there is no entry."""
        stream, beginnings = self._stream, beginnings_of(self._context)
        bound = beginnings.agreed(f"begins-{self._partition}", lambda: {"after": stream.bound(client)})["after"]
        entries = stream.entries(client, f"({bound}", 1)
        if not entries:
            return None
        return str(beginnings.agreed(f"first-{self._partition}", lambda: {"id": entries[0][0]})["id"])

    def _return_to(self, position: int) -> None:
        at = bisect_right(self._places, position, key=itemgetter(0)) - 1
        if at < 0:
            raise DeterminantsLost(f"{self._name}: position {position} was already released by a checkpoint")
        place, self._mark = self._places[at]
        self._skips = position - place
        self._next = position

    def _taken(self, client: redis.Redis, position: int, count_max: int) -> Read | None:
        asked = min(count_max + self._skips, self._fetch) + 2
        entries = self._stream.continued(client, self._mark, asked)
        full = len(entries) == asked
        if entries:
            self._fetch = max(
                1, min(FETCH_MAX, FETCH_BYTES * len(entries) // (1 + sum(size_of(f) for _, f in entries)))
            )
        if self._mark.startswith(AFTER):
            entries = entries[1:]
        if not entries:
            return None
        marks = [id_ for id_, _ in entries[1:]] + [AFTER + entries[-1][0]]
        count = min(len(entries) - full, count_max + self._skips)
        skipped = min(self._skips, count)
        records = [self._stream.record(entry) for entry in entries[skipped:count]]
        self._skips -= skipped
        self._mark = marks[count - 1]
        self._came_s = time.monotonic()
        if not records:
            return None
        self._next = position + len(records)
        self._remember(self._next, self._mark)
        return Read(records, time.monotonic_ns(), marks=marks[skipped:count])

    def _remember(self, position: int, mark: str) -> None:
        if position > self._places[-1][0]:
            self._places.append((position, mark))
            if len(self._places) > PLACES_MAX:
                del self._places[1::2]

    def _look(self, client: redis.Redis) -> None:
        """Look up the end of the stream now and then, while the server answers."""
        now_s = time.monotonic()
        if self._answers and now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            try:
                self._last = self._stream.last_id(client)
            except (Unavailable, PipelineError):
                self._answers = False  # the next read raises the error
