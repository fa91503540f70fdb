"""The rows and the account of one sink task in a Redis server: see `redis_streams` for what it promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgpack
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from causal.errors import CausalError, PipelineError
from causal.logs.log import LogDelta
from causal.ports import Bundle
from causal.records.values import decode, encode
from operators.sinks.contract.account import Account, check_newest, fenced, foreign_rows
from operators.sinks.contract.account_parts import Part, log_parts, mark_parts, take_part, whole_parts
from operators.sinks.databases.database import Before, Database, check_lines
from operators.sinks.redis import redis_scripts
from operators.sinks.redis.redis_errors import translated

if TYPE_CHECKING:
    from operators.sinks.redis.redis_streams import RedisSink

DURABLE = {"process": ("always", "no"), "os": ("always",)}
"""The values of appendfsync under which what is acknowledged is in the append-only file: `everysec` may lag behind."""


class RedisDatabase(Database[redis.Redis]):
    """The rows of one task in a stream, and its account in keys beside it."""

    failure = redis.RedisError
    lost = "it was emptied, lost its last writes, or a replica took over"

    def __init__(self, sink: RedisSink, task: str) -> None:
        super().__init__(sink, task, _place_of(sink.url))
        self._url = sink.url
        self._stream = sink.stream
        self._rows_max = sink.rows_max or 0
        self._timeout_s = sink.timeout_ms / 1000
        key = sink.key_of(task)
        self._keys = [key, f"{key}:causal", f"{key}:held", f"{key}:refused"]

    @property
    def output(self) -> str:
        return f"{self.place}: stream {self._stream}"

    def connect(self) -> None:
        """See `Database.connect`; no call waits for ever, and the client retries nothing by itself."""
        if self.connection is not None:
            return
        try:
            self.connection = redis.Redis.from_url(
                self._url,
                socket_timeout=self._timeout_s,
                socket_connect_timeout=self._timeout_s,
                retry=Retry(NoBackoff(), 0),
                single_connection_client=False,
            )
        except ValueError as problem:
            raise PipelineError(f"RedisSink: url is none ({problem}); e.g. redis://host:6379/0") from None

    def translated(self, problem: Exception) -> CausalError:
        return translated(problem, self.place)

    def check(self) -> None:
        self.db.ping()
        self._check_durable()

    def _check_durable(self) -> None:
        """Raise `PipelineError` where the server may forget acknowledged rows."""
        if self.durability == "server":
            return
        try:
            raw: dict[bytes | str, bytes | str] = {}
            for name in ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy"):
                raw |= self.db.config_get(name)
        except redis.ResponseError as problem:
            words = " ".join(str(problem).split())
            raise PipelineError(
                f"{self.place} does not report its settings ({words}), so what it keeps is unknown; allow CONFIG GET, "
                'or say RedisSink(…, durability="server")'
            ) from None
        settings = {_text(name): _text(value) for name, value in raw.items()}
        wanted = DURABLE[self.durability]
        if settings.get("appendonly") != "yes" or settings.get("appendfsync") not in wanted:
            raise PipelineError(
                f"{self.place} has appendonly {settings.get('appendonly')} and appendfsync "
                f"{settings.get('appendfsync')}, so rows that were visible are lost when it is killed; set appendonly "
                f'yes and appendfsync {" or ".join(wanted)}, or say RedisSink(…, durability="server")'
            )
        if settings.get("maxmemory", "0") != "0" and settings.get("maxmemory-policy", "").startswith("allkeys"):
            raise PipelineError(
                f"{self.place} throws any key away when memory is short (maxmemory-policy "
                f'{settings["maxmemory-policy"]}); set it to noeviction, or say RedisSink(…, durability="server")'
            )

    def newest_run(self) -> str | None:
        return max([_text(run) for run in self.db.hvals(f"{self._stream}:causal")], default=None)

    def claim(self, run: str, incarnation: int) -> Account:
        self._check_durable()
        arguments = (self.task, run, incarnation, self.existing, self._stream)
        answer, *stored = self.db.eval(redis_scripts.OPEN, 1, f"{self._stream}:causal", *arguments)
        if answer == b"newer":
            check_newest(self.output, run, stored[0].decode())
        if answer in (b"newer", b"run"):
            raise foreign_rows(self.output, self.sink_name)
        if answer == b"taken":
            raise PipelineError(
                f"{self.place}: the key {self._keys[0]} is there and no sink made it; give another stream"
            )
        if answer == b"fenced":
            raise fenced(self.task, incarnation)
        return self._decoded(*stored)

    def load(self) -> Account | None:
        account = self._decoded(*self.db.eval(redis_scripts.LOAD, len(self._keys), *self._keys))
        return account if account.run else None

    def append(self, before: Before, account: Account, fresh: Sequence[LogDelta], bundle: Bundle) -> bool:
        """See `Database.append`; one script, which the server performs as a whole or not at all."""
        check_lines(bundle, self.task)
        parts = [*log_parts(fresh), *mark_parts(account, before.marks)]
        refused = msgpack.packb([list(row) for row in bundle.refused], use_bin_type=False)
        return self._change(redis_scripts.APPEND, before, account, parts, bundle.rows, refused, self._rows_max)

    def truncate(self, account: Account) -> bool:
        unmoved = Before(account.next, account.last, 0)
        return self._change(redis_scripts.REPLACE, unmoved, account, whole_parts(account))

    def withdraw(self, before: Before, account: Account) -> bool:
        return self._change(redis_scripts.REPLACE, before, account, whole_parts(account), account.next)

    def _change(self, script: str, before: Before, account: Account, parts: Sequence[Part], *rest: Any) -> bool:
        packed_parts = msgpack.packb([encode(list(part)) for part in parts], use_bin_type=False)
        reply = self.db.register_script(script)(
            keys=self._keys,
            args=[account.run, account.incarnation, before.next, before.last, _fields(account), packed_parts, *rest],
        )
        if reply == b"foreign":
            raise PipelineError(
                f"{self.place}: another program adds to the stream {self._keys[0]}, beyond row {before.next}; "
                "keep others away and delete what they added (XDEL, XSETID)"
            )
        return bool(reply == b"done")

    def _decoded(self, fields: Sequence[bytes], parts: Sequence[bytes]) -> Account:
        """The account as it is stored; one without a run where there is none."""
        by_name = dict(zip(fields[::2], fields[1::2], strict=True))
        with self.decoding(f"keys {self._keys[1]} and {self._keys[2]}"):
            account = Account(self.task, by_name.get(b"run", b"").decode(), int(by_name.get(b"incarnation", b"-1")))
            account.next, account.last = int(by_name.get(b"next", b"0")), by_name.get(b"last", b"")
            if b"account" in by_name:
                digest, account.kept_from, account.ended, account.withdrawn, account.refused, epochs = decode(
                    by_name[b"account"]
                )
                account.digest, account.epochs = digest, dict(epochs)
            for part in parts:
                take_part(account, *decode(part))
        return account


def _place_of(url: str) -> str:
    """The name of the server in messages, without its password."""
    parts = urlsplit(url)
    at = (
        parts.path
        if parts.scheme == "unix"
        else f"{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
    )
    return f"Redis at {at}"


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _fields(account: Account) -> bytes:
    """The account as fields of a hash: those that the scripts compare, and the rest as one."""
    rest = [account.digest, account.kept_from, account.ended, account.withdrawn, account.refused, account.epochs]
    fields: Mapping[str, bytes] = {
        "next": str(account.next).encode(),
        "last": account.last,
        "account": encode(rest),
    }
    packed: bytes = msgpack.packb(fields, use_bin_type=False)
    return packed
