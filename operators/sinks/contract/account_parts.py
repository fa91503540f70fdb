"""The parts of an account beside its numbers: a store appends new ones and reads all of them back."""

from __future__ import annotations

from collections.abc import Iterable

from causal.logs.log import LogDelta
from causal.ports import WithdrawPoint
from causal.records.values import decode, encode
from operators.sinks.contract.account import Account

LOG, MARK = 0, 1
Part = tuple[int, int, bytes]
"""A part (LOG or MARK, epoch, body)."""


def log_parts(deltas: Iterable[LogDelta]) -> list[Part]:
    """Returns one part per epoch: appending never touches what is stored already."""
    by_epoch: dict[int, list[tuple[int, int, bytes]]] = {}
    for delta in deltas:
        by_epoch.setdefault(delta.epoch, []).append((delta.task, delta.offset, delta.bytes))
    return [(LOG, epoch, encode(entries)) for epoch, entries in by_epoch.items()]


def mark_parts(account: Account, start: int) -> list[Part]:
    """The account's marks from `start` on."""
    return [
        (MARK, mark.epoch, encode([mark.next, mark.digest, mark.rollback, mark.depends, refused]))
        for mark, refused in zip(account.marks[start:], account.mark_refused[start:], strict=True)
    ]


def take_part(account: Account, kind: int, epoch: int, body: bytes) -> None:
    """Add a part that was stored, in the order in which they were.

    Raises:
        CausalError, TypeError, ValueError: it is none.
    """
    if kind == LOG:
        account.merge(LogDelta(owner, epoch, start, bytes_) for owner, start, bytes_ in decode(body))
        return
    next_, digest, rollback, depends, refused = decode(body)
    extents = tuple((owner, at, extent) for owner, at, extent in depends)
    account.marks.append(WithdrawPoint(next_, digest, epoch, rollback, extents))
    account.mark_bytes.append(0)
    account.mark_refused.append(refused)
