"""The account of one sink task in PostgreSQL: read under a lock, and what a bundle adds to it as parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from causal.errors import CausalError, CorruptData
from causal.ports import Bundle
from causal.records.values import decode, encode
from operators.sinks.contract.account import Account, Part, take_part
from operators.sinks.postgres.postgres_connection import BoundedConnection
from operators.sinks.postgres.postgres_sql import Statements


def loaded(
    db: BoundedConnection, statements: Statements, key: Mapping[str, str], place: str
) -> tuple[Account, int] | None:
    """The account of that sink and task and the next free sequence; None if there is none.  In a transaction.

    Raises:
        CorruptData: it cannot be read.
    """
    row = db.execute(statements.loaded, key).fetchone()
    if row is None:
        return None
    run, incarnation, next_, digest, last, kept_from, ended, withdrawn, refused, epochs = row
    account = Account(key["task"], run, incarnation, next_, int.from_bytes(digest, "big"), last, kept_from, ended)
    account.withdrawn, account.refused = withdrawn, refused
    sequence = 0
    try:
        account.epochs = dict(decode(epochs))
        for sequence, kind, epoch, body in db.execute(statements.held_parts, key):  # noqa: B007
            take_part(account, kind, epoch, body)
    except (CausalError, TypeError, ValueError) as problem:
        where = f"{statements.schema}.causal_task and causal_held"
        raise CorruptData(f"{place}: {where} of {statements.name}, task {account.task}: {problem}") from None
    return account, sequence + 1


def advance(account: Account, key: Mapping[str, str], first: int, before: bytes) -> dict[str, Any]:
    """The parameters that make the stored account this one, if it is still at `first` with the last bundle `before`."""
    return {
        **key,
        "run": account.run,
        "incarnation": account.incarnation,
        "first": first,
        "before": before,
        "next": account.next,
        "digest": account.digest.to_bytes(8, "big"),
        "last": account.last,
        "ended": account.ended,
        "refused": account.refused,
        "withdrawn": account.withdrawn,
        "epochs": encode(account.epochs),
    }


def held_columns(parts: Sequence[Part], sequence: int) -> dict[str, Any]:
    """The parameters for the parts, by column."""
    return {
        "sequences": list(range(sequence, sequence + len(parts))),
        "kinds": [kind for kind, _, _ in parts],
        "held_epochs": [epoch for _, epoch, _ in parts],
        "bodies": [body for _, _, body in parts],
    }


def row_columns(bundle: Bundle) -> dict[str, Any]:
    """The parameters for the rows of a bundle: one text, and the positions that are left out."""
    return {
        "rows": bundle.rows[:-1].decode(),
        "out": [position for position, _ in bundle.refused],
        "reasons": [reason for _, reason in bundle.refused],
    }
