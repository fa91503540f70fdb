"""Sinks' stores: the rules that ship (`operators.sinks.contract.account`), and what users saw in each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack

from causal.errors import CausalError
from causal.ports import Bundle, StoreState, WithdrawPoint
from operators.sinks.contract.account import Account
from tests.exhaustive.cores import held_in
from tests.exhaustive.frozen import canonical, freeze, thaw
from tests.exhaustive.witness import Fact

Row = tuple[str, tuple[Fact, ...]]
"""(record and the path it took, facts after it)."""


@dataclass(frozen=True)
class Shelf:
    """One state of one store.

    Attributes:
        rows: as users see them.
        opened_by: the youngest incarnation that has opened it.
        broken: what a write broke that an observer can see immediately; empty if nothing.
    """

    account: Account
    rows: tuple[Row, ...]
    opened_by: int
    withdrawn: int
    broken: str = ""

    @property
    def facts(self) -> frozenset[Fact]:
        return frozenset(fact for _, facts in self.rows for fact in facts)

    @property
    def logs(self) -> dict[tuple[int, int], tuple[int, bytes]]:
        return held_in(self.account.logs)


def rows_of(bundle: Bundle) -> tuple[Row, ...]:
    """Return the rows of a bundle."""
    rows: list[Row] = []
    body = memoryview(bundle.rows)
    for name, facts in _values(body):
        rows.append((name, tuple((task, number, what) for task, number, what in facts)))
    return tuple(rows)


def _values(body: memoryview) -> list[Any]:
    unpacker = msgpack.Unpacker(use_list=True, strict_map_key=False)
    unpacker.feed(body)
    return list(unpacker)


class Stores:
    """States of stores by number, and what each call makes of them."""

    def __init__(self) -> None:
        self.shelves: list[Shelf] = []
        self._frozen: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._calls: dict[Any, tuple[int, Any]] = {}

    def empty(self, task: str) -> int:
        return self._keep(Shelf(Account(task, "run", 0), (), 0, 0))

    def open(self, number: int, incarnation: int) -> tuple[int, Any]:
        """Return (state, held bundle, or the error)."""

        def opened(shelf: Shelf) -> tuple[Shelf, StoreState]:
            if incarnation < shelf.account.incarnation:
                shelf.account.fence("run", incarnation)
            shelf.account.incarnation = incarnation
            return _with(shelf, opened_by=max(shelf.opened_by, incarnation)), shelf.account.store_state()

        return self._call((number, "open", incarnation), opened)

    def write(self, number: int, bundle: Bundle) -> tuple[int, Any]:
        """Return (state, None or the error), as for `truncate`."""

        def written(shelf: Shelf) -> tuple[Shelf, None]:
            shelf.account.fence("run", bundle.incarnation)
            broken = shelf.broken
            if bundle.incarnation != shelf.opened_by:
                broken = f"incarnation {bundle.incarnation} writes, {shelf.opened_by} has opened the store"
            if shelf.account.take(bundle) is None:
                return shelf, None
            return _with(shelf, rows=shelf.rows + rows_of(bundle), broken=broken), None

        return self._call((number, "write", bundle), written)

    def truncate(self, number: int, incarnation: int, epoch: int) -> tuple[int, Any]:
        def shortened(shelf: Shelf) -> tuple[Shelf, None]:
            shelf.account.fence("run", incarnation)
            shelf.account.truncate(epoch)
            return shelf, None

        return self._call((number, "truncate", incarnation, epoch), shortened)

    def withdraw(self, number: int, incarnation: int, mark: WithdrawPoint) -> tuple[int, Any]:
        """Return (state, held bundle, or the error)."""

        def taken_back(shelf: Shelf) -> tuple[Shelf, StoreState]:
            shelf.account.fence("run", incarnation)
            shelf.account.withdraw(mark)
            gone = len(shelf.rows) - mark.next
            return _with(
                shelf, rows=shelf.rows[: mark.next], withdrawn=shelf.withdrawn + gone
            ), shelf.account.store_state()

        return self._call((number, "withdraw", incarnation, mark), taken_back)

    def _call(self, key: Any, change: Callable[[Shelf], tuple[Shelf, Any]]) -> tuple[int, Any]:
        """Perform a call once; an error is returned as "family: text", and changes nothing."""
        outcome = self._calls.get(key)
        if outcome is None:
            try:
                shelf, answer = change(thaw(self._frozen[key[0]]))
                outcome = (self._keep(shelf), answer)
            except CausalError as problem:
                outcome = (key[0], f"{type(problem).__name__}: {problem}")
            self._calls[key] = outcome
        return outcome

    def _keep(self, shelf: Shelf) -> int:
        form = canonical(shelf)
        if form not in self._numbers:
            self._numbers[form] = len(self.shelves)
            self.shelves.append(shelf)
            self._frozen.append(freeze(shelf))
        return self._numbers[form]


def _with(shelf: Shelf, **changes: Any) -> Shelf:
    facts = {name: getattr(shelf, name) for name in ("account", "rows", "opened_by", "withdrawn", "broken")}
    return Shelf(**{**facts, **changes})
