"""Packs an account into bytes, for a store that keeps it as a whole."""

from __future__ import annotations

from causal.errors import CausalError, CorruptData
from causal.records.values import decode, encode
from operators.sinks.contract.account import Account
from operators.sinks.contract.account_parts import log_parts, mark_parts, take_part


def packed(account: Account) -> bytes:
    """The account as bytes, which `unpacked` reads."""
    numbers = [account.run, account.incarnation, account.next, account.digest, account.last, account.kept_from]
    more = [account.ended, account.row_bytes, account.withdrawn, account.refused]
    parts = [*log_parts(account.store_state().logs), *mark_parts(account, 0)]
    return encode([[*numbers, *more], sorted(account.epochs.items()), parts, account.mark_bytes])


def unpacked(task: str, body: bytes) -> Account:
    """The account of that task.

    Raises:
        CorruptData: these bytes are none.
    """
    try:
        (*numbers, ended, row_bytes, withdrawn, refused), epochs, parts, mark_bytes = decode(body)
        account = Account(task, *numbers)
        account.ended, account.epochs, account.row_bytes = ended, dict(epochs), row_bytes
        account.withdrawn, account.refused = withdrawn, refused
        for kind, epoch, part in parts:
            take_part(account, kind, epoch, part)
        account.mark_bytes = mark_bytes
    except (CausalError, TypeError, ValueError) as problem:
        raise CorruptData(f"the stored account of sink task {task} is none: {problem}; restore it") from None
    return account
