"""The store of one sink task, in a Redis server; see `redis_streams` for its promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgpack
import redis

from causal.errors import CausalError, CorruptData, Fenced, PipelineError, fenced
from causal.ports import Bundle
from causal.records.values import decode, encode
from operators.sinks.contract.account import (
    Account,
    Part,
    check_newest,
    foreign_rows,
    log_parts,
    mark_parts,
    take_part,
)
from operators.sinks.contract.account_store import Before, WithdrawingConnectedStore, check_lines
from operators.sinks.redis import redis_scripts
from operators.sinks.redis.redis_errors import client_of, translated

RETURN_MS = 600_000
"""The longest time for which a return to a savepoint may delete entries."""
DURABLE = {"process": ("always", "no"), "os": ("always",)}
"""The values of appendfsync under which acknowledged rows are in the append-only file: `everysec` may lag."""


@dataclass(frozen=True, slots=True)
class Target:
    """The server, stream and options of a sink."""

    url: str
    place: str
    stream: str
    existing: str
    durability: str
    rows_max: int
    timeout_ms: int
    undo_rows: int


def connected(target: Target) -> redis.Redis:
    """Return a client whose calls never wait forever and that never retries a call."""
    return client_of(target.url, target.timeout_ms)


def check_durable(client: redis.Redis, target: Target) -> None:
    """Raise `PipelineError` if the server may lose acknowledged rows, or `redis.RedisError` if it is unavailable."""
    if target.durability == "server":
        return
    try:
        raw: dict[bytes | str, bytes | str] = {}
        for name in ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy"):
            raw |= client.config_get(name)
    except redis.ResponseError as problem:
        words = " ".join(str(problem).split())
        raise PipelineError(
            f"{target.place} does not report its settings ({words}), so its durability is unknown; allow CONFIG GET, "
            'or use RedisSink(…, durability="server")'
        ) from None
    settings = {_text(name): _text(value) for name, value in raw.items()}
    wanted = DURABLE[target.durability]
    if settings.get("appendonly") != "yes" or settings.get("appendfsync") not in wanted:
        raise PipelineError(
            f"{target.place} has appendonly {settings.get('appendonly')} and appendfsync "
            f"{settings.get('appendfsync')}, so visible rows can be lost when it is killed; set appendonly yes "
            f'and appendfsync {" or ".join(wanted)}, or use RedisSink(…, durability="server")'
        )
    if settings.get("maxmemory", "0") != "0" and settings.get("maxmemory-policy", "").startswith("allkeys"):
        raise PipelineError(
            f"{target.place} evicts keys when memory is short (maxmemory-policy "
            f'{settings["maxmemory-policy"]}); set it to noeviction, or use RedisSink(…, durability="server")'
        )


def newest_run(client: redis.Redis, target: Target) -> str | None:
    """Return the newest run that has opened one of the sink's streams.

    Raises:
        redis.RedisError: the server is unavailable.
    """
    return max([_text(run) for run in client.hvals(f"{target.stream}:causal")], default=None)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


class RedisStore(WithdrawingConnectedStore[redis.Redis]):
    """The stream and account of one sink task. Only one thread may use the store at a time."""

    _errors = redis.RedisError
    form = ""
    """The form of the output, if it is not a stream per task."""
    _losses = "it was emptied, it lost its last writes, or a replica took over"

    def __init__(self, target: Target, task: str) -> None:
        super().__init__(task, target.place)
        self._target = target
        stream = f"{target.stream}:{task}"
        self._keys = [stream, f"{stream}:causal", f"{stream}:held", f"{stream}:refused"]

    @contextmanager
    def _connected(self, bundle: Bundle | None) -> Iterator[redis.Redis]:
        if self._connection is None:
            self._connection = connected(self._target)
        yield self._connection

    def _translated(self, problem: redis.RedisError) -> CausalError:
        return translated(problem, self._place)

    # -- the account ---------------------------------------------------------------------------------

    def _claimed(self, client: redis.Redis) -> Account:
        target, run, stream = self._target, self._run, f"{self._place}: stream {self._target.stream}"
        check_durable(client, target)
        claim = (self._task, run, self._incarnation, target.existing, target.stream, self.form)
        reply = client.eval(redis_scripts.OPEN, 1, f"{target.stream}:causal", *claim)
        if reply[0] == b"newer":
            check_newest(stream, run, reply[1].decode())
        if reply[0] in (b"newer", b"run"):
            raise foreign_rows(stream, "RedisSink")
        if reply[0] == b"form":
            has = "a stream per task" if self.form else "a hash by key"
            raise PipelineError(f"{stream} has {has} (upsert=); use another stream")
        if reply[0] == b"table":
            raise PipelineError(f"{stream} already has the table of sink {reply[1].decode()!r}; use another stream")
        if reply[0] == b"taken":
            raise PipelineError(
                f"{self._place}: the key {self._keys[0]} exists but was not created by a sink; use another stream"
            )
        if reply[0] == b"fenced":
            raise fenced(self._task, self._incarnation)
        return self._decoded(reply[1], reply[2])

    def _loaded(self, client: redis.Redis) -> Account | None:
        account = self._decoded(*client.eval(redis_scripts.LOAD, 4, *self._keys))
        return account if account.run else None

    def _owner(self, client: redis.Redis) -> tuple[str, int] | None:
        run, incarnation = client.hmget(self._keys[1], "run", "incarnation")
        return (run.decode(), int(incarnation)) if run is not None and incarnation is not None else None

    def _check_newest(self, client: redis.Redis) -> None:
        target = self._target
        check_newest(f"{self._place}: stream {target.stream}", self._run, newest_run(client, target))

    def _advance(
        self, client: redis.Redis, account: Account, before: Before, parts: Sequence[Part], bundle: Bundle
    ) -> bool:
        check_lines(bundle, self._task)
        refused = msgpack.packb([list(row) for row in bundle.refused], use_bin_type=False)
        rest = (bundle.rows, refused, self._target.rows_max)
        return self._change(client, redis_scripts.WRITE, account, before, parts, *rest)

    def _shorten(self, client: redis.Redis, account: Account, epoch: int) -> bool:
        parts = [*log_parts(account.store_state().logs), *mark_parts(account, 0)]
        return self._change(client, redis_scripts.TRUNCATE, account, (account.next, account.last), parts)

    def _take_back(self, client: redis.Redis, account: Account, before: Before, parts: Sequence[Part]) -> bool:
        return self._change(client, redis_scripts.WITHDRAW, account, before, parts, account.next)

    def _returned(self, client: redis.Redis, account: Account, next_: int, digest: int) -> None:
        # The entries of hours may have to be deleted.
        with closing(connected(replace(self._target, timeout_ms=RETURN_MS))) as patient:
            super()._returned(patient, account, next_, digest)

    def _refused_below(self, client: redis.Redis, next_: int) -> int:
        return sum(int(position) < next_ for position in client.hkeys(self._keys[3]))

    def _change(
        self, client: redis.Redis, script: str, account: Account, before: Before, parts: Sequence[Part], *rest: Any
    ) -> bool:
        """Store the account and the rows that belong to it, provided the stored account is still `before`."""
        packed_parts = msgpack.packb([encode(list(part)) for part in parts], use_bin_type=False)
        reply = client.register_script(script)(
            keys=self._keys, args=[self._run, self._incarnation, *before, _fields(account), packed_parts, *rest]
        )
        if reply == b"foreign":
            raise PipelineError(
                f"{self._place}: another program added entries to the stream {self._keys[0]} after row "
                f"{before[0]}; stop that program and delete its entries (XDEL, XSETID)"
            )
        return bool(reply == b"done")

    def _decoded(self, fields: Sequence[bytes], parts: Sequence[bytes]) -> Account:
        """Return the stored account, or an account without a run if none is stored."""
        by_name = dict(zip(fields[::2], fields[1::2], strict=True))
        try:
            account = Account(self._task, by_name.get(b"run", b"").decode(), int(by_name.get(b"incarnation", b"-1")))
            account.next, account.last = int(by_name.get(b"next", b"0")), by_name.get(b"last", b"")
            if b"account" in by_name:
                digest, account.kept_from, account.ended, account.withdrawn, account.refused, epochs = decode(
                    by_name[b"account"]
                )
                account.digest, account.epochs = digest, dict(epochs)
            for part in parts:
                take_part(account, *decode(part))
        except Fenced:
            raise
        except (CausalError, TypeError, ValueError) as problem:
            raise CorruptData(f"{self._target.place}: keys {self._keys[1]} and {self._keys[2]}: {problem}") from None
        return account


def _fields(account: Account) -> bytes:
    """Return the account as fields of a hash: the fields that the scripts compare, and one field with all the rest."""
    rest = [account.digest, account.kept_from, account.ended, account.withdrawn, account.refused, account.epochs]
    fields: Mapping[str, bytes] = {
        "next": str(account.next).encode(),
        "last": account.last,
        "account": encode(rest),
    }
    packed: bytes = msgpack.packb(fields, use_bin_type=False)
    return packed
