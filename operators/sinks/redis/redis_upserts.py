"""The store of one sink task with `upsert=True`, in a Redis server: a hash with one field per key of a table.

All tasks of a sink share the hash, `<stream>`. What a bundle changes is remembered in the sorted set `…:undo` of its
task, by position: `[epoch, position, key, record]`, where the record is false if there was none. What a withdrawal
restores is computed here, and performed by a script, provided that the account has not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack
import redis

from causal.ports import Bundle
from operators.sinks.contract.account import Account, Part, log_parts, mark_parts
from operators.sinks.contract.account_store import Before, check_lines
from operators.sinks.contract.upserts import Undo, restored, undo_floor, undo_limit, undo_obstacle
from operators.sinks.redis import redis_scripts
from operators.sinks.redis.redis_store import RedisStore, Target

BY_KEY = "key"
"""The form of the output of a sink with `upsert=True`, as its accounts have it."""


class RedisUpsertStore(RedisStore):
    """The account of one sink task, and its part of the hash. Only one thread may use the store at a time."""

    form = BY_KEY

    def __init__(self, target: Target, task: str) -> None:
        super().__init__(target, task)
        self._keys = [target.stream, *self._keys[1:], self._undo_of(task)]

    def _undo_of(self, task: str) -> str:
        return f"{self._target.stream}:{task}:undo"

    def _advance(
        self, client: redis.Redis, account: Account, before: Before, parts: Sequence[Part], bundle: Bundle
    ) -> bool:
        check_lines(bundle, self._task)
        refused = msgpack.packb([list(row) for row in bundle.refused], use_bin_type=False)
        rest = (bundle.rows, refused, bundle.epoch)
        return self._change(client, redis_scripts.UPSERT, account, before, parts, *rest)

    def _shorten(self, client: redis.Redis, account: Account, epoch: int) -> bool:
        parts = [*log_parts(account.store_state().logs), *mark_parts(account, 0)]
        marks_from = account.marks[0].next if account.marks else None
        floor = undo_floor(account.next, marks_from, self._target.undo_rows)
        return self._change(client, redis_scripts.TRUNCATE_UNDO, account, (account.next, account.last), parts, floor)

    def _take_back(self, client: redis.Redis, account: Account, before: Before, parts: Sequence[Part]) -> bool:
        members = self._entries(client, account.next)
        newest = sorted(members, key=lambda entry: (entry.epoch, entry.position), reverse=True)
        back = restored(newest, self._task, account.next)
        rows = [[key, _stored(record)] for key, record in back.rows.items()]
        others = [
            [self._undo_of(entry.task), entry.position, member, _packed(entry._replace(record=back.others[at]))]
            for entry, member in members.items()
            if (at := (entry.task, entry.position, entry.key)) in back.others
        ]
        packed = (msgpack.packb(each, use_bin_type=False) for each in (rows, others))
        return self._change(client, redis_scripts.UNDO, account, before, parts, account.next, *packed)

    def _entries(self, client: redis.Redis, next_: int) -> dict[Undo, bytes]:
        """Return the entries of this task from a position on, and those of other tasks that are not older."""
        own = _unpacked(self._task, client.zrangebyscore(self._keys[4], next_, "+inf"))
        if not own:
            return {}
        first = min(entry.epoch for entry in own)
        for task in sorted(name.decode() for name in client.hkeys(f"{self._target.stream}:causal")):
            if task != self._task:
                others = _unpacked(task, client.zrange(self._undo_of(task), 0, -1))
                own |= {entry: member for entry, member in others.items() if entry.epoch >= first}
        return own

    def limit(self, rows: int) -> str:
        """See `causal.ports.ReturningStore.limit`."""
        return undo_limit(self._target.undo_rows, rows)

    def _obstacle(self, client: redis.Redis, account: Account, next_: int) -> str:
        oldest = client.zrange(self._keys[4], 0, 0, withscores=True)
        return undo_obstacle(int(oldest[0][1]) if oldest else None, account.next, next_)


def _unpacked(task: str, members: Sequence[bytes]) -> dict[Undo, bytes]:
    entries = {}
    for member in members:
        epoch, position, key, record = msgpack.unpackb(member)
        entries[Undo(task, epoch, position, key, None if record is False else record)] = member
    return entries


def _packed(entry: Undo) -> bytes:
    packed: bytes = msgpack.packb([entry.epoch, entry.position, entry.key, _stored(entry.record)], use_bin_type=False)
    return packed


def _stored(record: str | None) -> Any:
    """Return the record as the scripts have it."""
    return False if record is None else record
