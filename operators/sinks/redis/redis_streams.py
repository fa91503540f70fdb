"""A sink that writes rows to streams of a Redis server, each exactly once, readable at any moment.

There is one stream per sink task, `<stream>:<task>`, such as `output:out/0`. An entry's ID is `<position>-1`, and its
only field, `record`, is the row as JSON. A row cannot be duplicated, because Redis refuses an ID that is not higher
than the last one.

    XRANGE output:out/0 - +                     all rows of a task
    XREAD BLOCK 0 STREAMS output:out/0 41-1     the rows after position 41

With `upsert=True`, a table is the hash `<stream>`: `HGET output KEY` is the row of a key, as JSON (`redis_upserts`).

A bundle is one script, which the server performs completely or not at all: rows, position, digest, determinants and the
comparison of the incarnation. Next to the stream are `…:causal` (the account), `…:held` (determinants of epochs that no
complete checkpoint covers yet), `…:refused` (rows set aside: position and reason) and `<stream>:causal` (the tasks).

Durability depends on the server, and is checked when the store is opened.

    "process"   survives kill -9 of the server: needs appendonly yes with appendfsync always or no.  With the default,
                everysec, Redis may answer before it has written: the death of its process loses up to two seconds
    "os"        survives loss of power: needs appendonly yes with appendfsync always
    "server"    depends on the server's settings, which are not checked

If acknowledged rows are lost, the order in which this task consumed its inputs is lost too, and the job ends with an
error that says so. A sink task that dies together with the server cannot detect this, and resumes from the stored rows.
The same applies to a failover: replication is asynchronous, so a replica that takes over may lack rows. A Redis Cluster
is refused.

Needs redis-py 5.0.8 (extra `redis`) and Redis 6.2 or later.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from causal.errors import PipelineError, Unavailable
from causal.ports import SinkStore
from operators.sinks.contract.options import EXISTING, WAIT_MS_MAX, check_choice, check_durability, check_range
from operators.sinks.contract.sink import Sink
from operators.sinks.contract.upserts import UNDO_ROWS, UNDO_ROWS_MAX
from operators.sinks.redis.redis_address import check_address, place_of, require_redis

if TYPE_CHECKING:
    from operators.sinks.redis.redis_store import Target

DURABILITY = ("process", "os", "server")


class RedisSink(Sink):
    """A sink that writes rows as entries of Redis streams.

    Needs: extra `redis`, Redis 6.2 or later.
    Readers: streams `<stream>:<task>`, the position of a row is its ID; the hash `<stream>` with `upsert`.
    Step: one script on the server.
    Fence: the script compares incarnation, position and last bundle.
    Server: `durability="process"`: `appendonly yes` with `appendfsync` `always` or `no`.
    Power: `durability="os"`: `appendfsync always`.
    Limits: the default `everysec` is refused: Redis may answer before it has written; no cluster; after a failover to a
    replica that lagged, the job ends.

    Args:
        url: "redis://host:6379/0", "rediss://…" (TLS) or "unix:///path/to/socket".
        stream: the prefix of the keys.
        existing: what to do with rows of an earlier run: "refuse" to start, or "replace" them.
        durability: "process", "os" or "server" (see the module); by default, the job's.
        rows_max: the approximate number of most recent rows that each stream keeps; None keeps all rows.
        timeout_ms: the time limit for each call; a call that exceeds it raises `Unavailable` and is retried.
        upsert: keep one field per key of a table in the hash `stream`, for `table.sink`; not with `rows_max`.
        undo_rows: with `upsert`, how many of its latest revisions a task can undo for a return to a savepoint.
    """

    everywhere = True

    def __init__(
        self,
        url: str,
        stream: str = "output",
        existing: str = "refuse",
        durability: str | None = None,
        rows_max: int | None = None,
        timeout_ms: int = 2000,
        upsert: bool = False,
        undo_rows: int = UNDO_ROWS,
    ) -> None:
        said = f"RedisSink(stream={stream!r})"
        if not stream:
            raise PipelineError(f"{said}: stream is empty; pass a prefix for the keys")
        check_address(said, url)
        check_choice(said, "existing", existing, EXISTING)
        check_durability(said, durability, DURABILITY)
        if rows_max is not None and rows_max < 1:
            raise PipelineError(f"{said}: rows_max is {rows_max!r}; use 1 or more, or None for all rows")
        check_range(said, "timeout_ms", timeout_ms, 1, WAIT_MS_MAX)
        if upsert and rows_max is not None:
            raise PipelineError(f"{said}: upsert=True keeps a row per key, not the latest rows; leave rows_max out")
        check_range(said, "undo_rows", undo_rows, 0, UNDO_ROWS_MAX)
        self.upsert = upsert
        self.url = url
        self.stream = stream
        self.durability = durability
        self.existing: str = existing
        self._said = (stream, existing, "", rows_max or 0, timeout_ms, undo_rows)

    def key_of(self, task: str) -> str:
        """Return the key of the stream with the rows of one sink task."""
        return f"{self.stream}:{task}"

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task; the store connects only when it is opened."""
        require_redis("RedisSink")
        if self.upsert:
            from operators.sinks.redis.redis_upserts import RedisUpsertStore

            return RedisUpsertStore(self._target(), task)
        from operators.sinks.redis.redis_store import RedisStore

        return RedisStore(self._target(), task)

    def check(self) -> None:
        """Raise `PipelineError` for mistakes in the url or the server's settings.

        An unavailable server is not an error here: the job will wait for it.
        """
        require_redis("RedisSink")
        import redis

        from operators.sinks.redis.redis_errors import translated
        from operators.sinks.redis.redis_store import check_durable, connected

        target = self._target()
        try:
            client = connected(target)
        except (ValueError, TypeError) as problem:
            raise PipelineError(f"RedisSink: url is invalid ({problem}); use one like redis://host:6379/0") from None
        try:
            client.ping()
            check_durable(client, target)
        except (TypeError, UnicodeError) as problem:  # the url has an unknown option or an invalid host
            raise PipelineError(f"{target.place}: its url cannot be used ({problem}); correct the url") from None
        except redis.RedisError as problem:
            error = translated(problem, target.place)
            if not isinstance(error, Unavailable):
                raise error from problem
        finally:
            client.close()

    def newest_run(self) -> str | None:
        """Return the newest run that has opened one of the streams."""
        require_redis("RedisSink")
        import redis

        from operators.sinks.redis.redis_errors import translated
        from operators.sinks.redis.redis_store import connected, newest_run

        target = self._target()
        client = connected(target)
        try:
            return newest_run(client, target)
        except redis.RedisError as problem:
            raise translated(problem, target.place) from problem
        finally:
            client.close()

    def _target(self) -> Target:
        from operators.sinks.redis.redis_store import Target

        said = Target(self.url, place_of(self.url), *self._said)
        return replace(said, existing=self.existing, durability=self.durability or "process")
