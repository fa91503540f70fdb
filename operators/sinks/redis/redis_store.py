"""The outside world of one sink task, in a Redis server: see `redis_streams` for what it promises.

What was asked and not answered may still happen on the server.  Each script names the account that it follows, so it
happens once or not at all, and after any error the account is read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgpack
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from causal.errors import CausalError, CorruptData, DeterminantsLost, Fenced, PipelineError, Unavailable, invariant
from causal.ports import Bundle, StoreState, WithdrawPoint
from causal.records.values import decode, encode
from operators.sinks.contract.account import (
    Account,
    Part,
    check_newest,
    fenced,
    foreign_rows,
    log_parts,
    mark_parts,
    take_part,
)
from operators.sinks.redis import redis_scripts
from operators.sinks.redis.redis_errors import translated

DURABLE = {"process": ("always", "no"), "os": ("always",)}
"""The values of appendfsync under which what is acknowledged is in the append-only file: `everysec` may lag behind."""


@dataclass(frozen=True, slots=True)
class Target:
    """The address and options of a sink."""

    url: str
    place: str
    stream: str
    existing: str
    durability: str
    rows_max: int
    timeout_ms: int


def connected(target: Target) -> redis.Redis:
    """A client on which no call waits for ever, and which retries nothing by itself."""
    timeout_s = target.timeout_ms / 1000
    client = redis.Redis.from_url(
        target.url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        single_connection_client=False,
    )
    return client


def check_durable(client: redis.Redis, target: Target) -> None:
    """Raise `PipelineError` where the server may forget acknowledged rows; `redis.RedisError` if it is unavailable."""
    if target.durability == "server":
        return
    try:
        raw: dict[bytes | str, bytes | str] = {}
        for name in ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy"):
            raw |= client.config_get(name)
    except redis.ResponseError as problem:
        words = " ".join(str(problem).split())
        raise PipelineError(
            f"{target.place} does not report its settings ({words}), so what it keeps is unknown; allow CONFIG GET, "
            'or say RedisSink(…, durability="server")'
        ) from None
    settings = {_text(name): _text(value) for name, value in raw.items()}
    wanted = DURABLE[target.durability]
    if settings.get("appendonly") != "yes" or settings.get("appendfsync") not in wanted:
        raise PipelineError(
            f"{target.place} has appendonly {settings.get('appendonly')} and appendfsync "
            f"{settings.get('appendfsync')}, so rows that were visible are lost when it is killed; set appendonly yes "
            f'and appendfsync {" or ".join(wanted)}, or say RedisSink(…, durability="server")'
        )
    if settings.get("maxmemory", "0") != "0" and settings.get("maxmemory-policy", "").startswith("allkeys"):
        raise PipelineError(
            f"{target.place} throws any key away when memory is short (maxmemory-policy "
            f'{settings["maxmemory-policy"]}); set it to noeviction, or say RedisSink(…, durability="server")'
        )


def newest_run(client: redis.Redis, target: Target) -> str | None:
    """The newest run that has opened one of the sink's streams; `redis.RedisError` if the server is unavailable."""
    return max([_text(run) for run in client.hvals(f"{target.stream}:causal")], default=None)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


class RedisStore:
    """A stream of rows, with an account beside it.  One thread at a time."""

    def __init__(self, target: Target, task: str) -> None:
        self._target = target
        self._task = task
        self._run = ""
        self._incarnation = -1
        self._client: redis.Redis | None = None
        self._account: Account | None = None
        self._acknowledged = 0
        stream = f"{target.stream}:{task}"
        self._keys = [stream, f"{stream}:causal", f"{stream}:held", f"{stream}:refused"]

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `causal.ports.SinkStore.open`."""
        invariant(task == self._task, "a store is opened by the task it was made for", made_for=self._task, task=task)
        self.close()
        self._run, self._incarnation, self._acknowledged = run, incarnation, 0
        target = self._target
        try:
            with self._asking() as client:
                check_durable(client, target)
                reply = client.eval(
                    redis_scripts.OPEN,
                    1,
                    f"{target.stream}:causal",
                    task,
                    run,
                    incarnation,
                    target.existing,
                    target.stream,
                )
                if reply[0] == b"newer":
                    check_newest(f"{target.place}: stream {target.stream}", run, reply[1].decode())
                if reply[0] in (b"newer", b"run"):
                    raise foreign_rows(f"{target.place}: stream {target.stream}", "RedisSink")
                if reply[0] == b"taken":
                    raise PipelineError(
                        f"{target.place}: the key {self._keys[0]} is there and no sink made it; give another stream"
                    )
                if reply[0] == b"fenced":
                    raise fenced(task, incarnation)
                self._account = account = self._decoded(reply[1], reply[2])
                self._acknowledged = account.next
                return account.store_state()
        except BaseException:
            self.close()
            raise

    def last_bundle(self) -> StoreState:
        """See `causal.ports.SinkStore.last_bundle`."""
        with self._asking() as client:
            self._account = None
            return self._current(client).store_state()

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`."""
        invariant(bundle.incarnation == self._incarnation, "a bundle is its writer's own", task=self._task)
        lines = bundle.rows.count(b"\n")
        invariant(lines == bundle.count, "one line per row", task=self._task, first=bundle.first, lines=lines)
        with self._asking() as client:
            account = self._current(client)
            before, marks = (account.next, account.last), len(account.marks)
            fresh = account.take(bundle)
            if fresh is None:
                self._check_owner(client)
                return
            parts = [*log_parts(fresh), *mark_parts(account, marks)]
            refused = [list(row) for row in bundle.refused]
            rest = (bundle.rows, msgpack.packb(refused, use_bin_type=False), self._target.rows_max)
            self._change(client, redis_scripts.WRITE, before, parts, *rest)

    def truncate(self, epoch: int) -> None:
        """See `causal.ports.SinkStore.truncate`."""
        if self._account is not None and epoch <= self._account.kept_from:
            return
        with self._asking() as client:
            account = self._current(client)
            if not account.truncate(epoch):
                self._check_owner(client)
                return
            parts = [*log_parts(account.store_state().logs), *mark_parts(account, 0)]
            self._change(client, redis_scripts.TRUNCATE, (account.next, account.last), parts)

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        """See `causal.ports.WithdrawingStore.withdraw`."""
        with self._asking() as client:
            account = self._current(client)
            before = (account.next, account.last)
            account.withdraw(mark)
            parts = [*log_parts(account.store_state().logs), *mark_parts(account, 0)]
            self._change(client, redis_scripts.WITHDRAW, before, parts, mark.next)
            return account.store_state()

    def close(self) -> None:
        """Close the connection; what was written stays."""
        client, self._client, self._account = self._client, None, None
        if client is not None:
            client.close()

    @contextmanager
    def _asking(self) -> Iterator[redis.Redis]:
        """A client for one call; after any error, connection and account are not used any further."""
        if self._run == "":
            raise Unavailable(f"the store of sink task {self._task} is not open; open it first")
        try:
            if self._client is None:
                self._client = connected(self._target)
            yield self._client
        except redis.RedisError as problem:
            self.close()
            raise translated(problem, self._target.place) from problem
        except CausalError:
            self._account = None
            raise
        except BaseException:
            self.close()
            raise

    def _change(
        self, client: redis.Redis, script: str, before: tuple[int, bytes], parts: Sequence[Part], *rest: Any
    ) -> None:
        """Store the account in memory and the rows that go with it, if the stored one is still that `before`."""
        account = self._account
        invariant(account is not None, "an account is changed before it is stored", task=self._task)
        if account is None:
            return
        packed_parts = msgpack.packb([encode(list(part)) for part in parts], use_bin_type=False)
        reply = client.register_script(script)(
            keys=self._keys, args=[self._run, self._incarnation, *before, _fields(account), packed_parts, *rest]
        )
        if reply == b"done":
            self._acknowledged = account.next
            return
        self._account = None
        place = self._target.place
        if reply == b"foreign":
            raise PipelineError(
                f"{place}: another program adds to the stream {self._keys[0]}, beyond row {before[0]}; "
                "keep others away and delete what they added (XDEL, XSETID)"
            )
        self._current(client)
        raise Unavailable(f"{place}: an earlier try of the same was still under way; retry")

    def _current(self, client: redis.Redis) -> Account:
        """The account in memory, or read again after a failure; never one of a younger incarnation."""
        if self._account is None:
            account = self._decoded(*client.eval(redis_scripts.LOAD, 4, *self._keys))
            if account.run != self._run:
                replaced = self._not_owner(client)
                if account.run:
                    raise replaced
            if account.next < self._acknowledged:
                raise DeterminantsLost(
                    f"{self._target.place}: rows of {self._task} up to {self._acknowledged} were acknowledged, and it "
                    f"has rows up to {account.next}: it was emptied, lost its last writes, or a replica took over; "
                    "bring them back, or resume (--resume): they come again, perhaps in another order"
                )
            account.fence(self._run, self._incarnation)
            self._account = account
        return self._account

    def _check_owner(self, client: redis.Redis) -> None:
        run, incarnation = client.hmget(self._keys[1], "run", "incarnation")
        if (run, incarnation) != (self._run.encode(), str(self._incarnation).encode()):
            raise self._not_owner(client)

    def _not_owner(self, client: redis.Redis) -> Fenced:
        """The error of a process that another one has replaced; raises `Superseded` if that one is of a newer run."""
        target = self._target
        check_newest(f"{target.place}: stream {target.stream}", self._run, newest_run(client, target))
        return fenced(self._task, self._incarnation)

    def _decoded(self, fields: Sequence[bytes], parts: Sequence[bytes]) -> Account:
        """The account as it is stored; one without a run where there is none."""
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
    """The account as fields of a hash: those that the scripts compare, and the rest as one."""
    rest = [account.digest, account.kept_from, account.ended, account.withdrawn, account.refused, account.epochs]
    fields: Mapping[str, bytes] = {
        "next": str(account.next).encode(),
        "last": account.last,
        "account": encode(rest),
    }
    packed: bytes = msgpack.packb(fields, use_bin_type=False)
    return packed
