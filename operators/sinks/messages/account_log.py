"""The account of one sink task as a log of records: how each change is written, and how a reader folds them (pure).

    WHOLE   the whole account, of a new run or without the determinants that a checkpoint made unnecessary
    CLAIM   from here on, this incarnation owns the account
    LOGS    determinants, before the rows that depend on them are written (without transactions)
    STEP    a bundle: the position after it and the determinants that are new
    ROWS    the position up to which rows of the next bundle are written, for a bundle that one transaction cannot hold

A record counts only if its writer owns the account at that place of the log, and a step only if it follows the account
as it stands there. Whatever a replaced process appends later is therefore passed over, and an attempt whose answer was
lost counts once. A record above `PART_BYTES` is cut into messages, and counts when the last one is there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from causal.errors import CausalError, CorruptData
from causal.records.values import decode, encode
from operators.sinks.contract.account import Account, Part, packed, take_part, unpacked

WHOLE, CLAIM, LOGS, STEP, ROWS = range(5)
PART_BYTES = 512 << 10
"""Half of what a broker accepts by default."""
PARTS_MAX = 1 << 16


def whole_record(account: Account) -> bytes:
    """Return the record of the complete account."""
    return encode([WHOLE, account.run, account.incarnation, account.task, packed(account)])


def claim_record(run: str, incarnation: int) -> bytes:
    """Return the record by which an incarnation takes over the account of its run."""
    return encode([CLAIM, run, incarnation])


def logs_record(account: Account, parts: Sequence[Part]) -> bytes:
    """Return the record of determinants on which the next rows depend."""
    return encode([LOGS, account.run, account.incarnation, [list(part) for part in parts]])


def step_record(account: Account, before: tuple[int, bytes], parts: Sequence[Part]) -> bytes:
    """Return the record of the bundle after which the account is as it is now.

    Args:
        before: the position and last bundle of the account before it.
    """
    numbers = [account.next, account.digest, account.last, account.ended, account.row_bytes, account.refused]
    rest = [numbers, sorted(account.epochs.items()), [list(part) for part in parts]]
    return encode([STEP, account.run, account.incarnation, *before, *rest])


def rows_record(account: Account, written: int) -> bytes:
    """Return the record that rows below position `written` are there, although their bundle is not complete."""
    return encode([ROWS, account.run, account.incarnation, written])


def messages_of(record: bytes, part_bytes: int = 0) -> list[bytes]:
    """Return the messages of one record, each small enough for a broker.

    Args:
        part_bytes: the size of a part, if messages must be smaller than most brokers demand.
    """
    name, size = os.urandom(8), part_bytes or PART_BYTES
    pieces = [record[start : start + size] for start in range(0, len(record), size)]
    return [encode([name, number, len(pieces), piece]) for number, piece in enumerate(pieces)]


class AccountLog:
    """The account that the records read so far amount to; None before the first one.

    State: rows below position `written` are there, even if the account's position is lower.
    """

    def __init__(self, task: str, where: str) -> None:
        self.account: Account | None = None
        self.written = 0
        self._task = task
        self._where = where
        self._name = b""
        self._pieces: list[bytes] = []

    def take(self, message: bytes) -> None:
        """Read the next message of the log.

        Raises:
            CorruptData: it is no message of an account.
        """
        try:
            name, number, count, piece = decode(message)
            if not 0 <= number < count <= PARTS_MAX:
                raise ValueError(f"part {number} of {count}")
            if number == 0:
                self._name, self._pieces = name, []
            if name != self._name or number != len(self._pieces):
                return  # the rest of a record whose beginning did not arrive: its writer was replaced meanwhile
            self._pieces.append(piece)
            if number + 1 == count:
                self._name, pieces = b"", self._pieces
                self._fold(*decode(b"".join(pieces)))
        except CorruptData:
            raise
        except (CausalError, TypeError, ValueError) as problem:
            raise CorruptData(f"{self._where} does not hold an account of {self._task}: {problem}") from None

    def _fold(self, kind: int, run: str, incarnation: int, *rest: object) -> None:
        account = self.account
        if kind == WHOLE:
            if account is None or (run, incarnation) >= (account.run, account.incarnation):
                task, body = rest
                self.account = unpacked(task, body)  # type: ignore[arg-type]
                self.written = self.account.next
            return
        if account is None or account.run != run:
            return
        if kind == CLAIM:
            account.incarnation = max(account.incarnation, incarnation)
        elif account.incarnation == incarnation and kind == LOGS:
            _add(account, *rest)
        elif account.incarnation == incarnation and kind == ROWS:
            (self.written,) = rest  # type: ignore[assignment]
        elif account.incarnation == incarnation and kind == STEP and (account.next, account.last) == rest[:2]:
            _step(account, *rest[2:])
            self.written = max(self.written, account.next)


def _add(account: Account, parts: object) -> None:
    for part in parts:  # type: ignore[attr-defined]
        take_part(account, *part)


def _step(account: Account, numbers: object, epochs: object, parts: object) -> None:
    account.next, account.digest, account.last, account.ended, account.row_bytes, account.refused = numbers  # type: ignore[misc]
    account.epochs = dict(epochs)  # type: ignore[call-overload]
    _add(account, parts)
