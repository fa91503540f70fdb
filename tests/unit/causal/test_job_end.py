"""Rows of a job that has ended stay, although no checkpoint covers them."""

from __future__ import annotations

from dataclasses import replace

from causal.ports import Bundle
from operators.sinks.contract.account import Account
from operators.sinks.journaled.ledger import covered


def test_rows_that_no_checkpoint_covers_are_covered_by_the_end_and_a_withdrawal_takes_the_end_back() -> None:
    account = Account("out/0", "run", 1)
    account.take(Bundle(0, 3, b"abc", 5, 0, 1, (), depends=()))
    assert covered(account) == 0
    last = Bundle(3, 0, b"", 5, 0, 1, (), ended=True, depends=())
    account.take(last)
    assert covered(account) == 3
    assert account.take(replace(last)) is None, "a repeated end changes nothing"
    account.withdraw(account.marks[0])
    assert not account.ended and covered(account) == 0
