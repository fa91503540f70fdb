"""Dead letters of refused rows: kept where no reader looks until their bundle is stored, and shown then.

A bundle may never be stored, because its writer died: another one replaces it, with other rows at the same positions.
So its letters are written twice. First they are *kept*, with the state of the store once it has accepted the bundle
without these rows; then they are shown. The next process asks the store for its state: it shows the letters kept for
exactly this state, and drops the rest. So no letter is lost, and none contradicts the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any, Protocol

from causal.errors import CausalError, invariant
from causal.ports import StoreState
from causal.records.values import decode, encode
from operators.sinks.contract.sink import encode_json


def letter_of(operator: str, task: str, run: str, position: int, record: Any, reason: str) -> bytes:
    """Return the dead letter of a refused row, as a line of JSON."""
    facts = {"operator": operator, "key": None, "position": position, "record": record}
    facts |= {"error": f"RowRefused: {reason}", "task": task, "run": run}
    return (encode_json(facts) + "\n").encode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class Kept:
    """The letters of rows of one bundle that were found to be refused at the same time.

    Attributes:
        run: of the job.
        first: the position of the bundle's first row.
        next: the position after its last row.
        digest: of all rows up to there.
        before: the number of rows that the store leaves out without these, ever.
        letters: a line of JSON for each row.
    """

    run: str
    first: int
    next: int
    digest: int
    before: int
    letters: list[bytes]

    @property
    def after(self) -> int:
        """The number of rows that the store leaves out with these, ever."""
        return self.before + len(self.letters)

    def packed(self) -> bytes:
        """Return the bytes that `unpacked` reads."""
        return encode(list(astuple(self)))


def unpacked(body: bytes) -> Kept:
    """Return the letters in bytes that this module wrote and that have their checksum, or lie in a store that has
    it.
    """
    try:
        return Kept(*decode(body))
    except (CausalError, TypeError, ValueError) as problem:
        invariant(False, "kept letters can be read", problem=problem)
        raise


def standing(every: Iterable[Kept], run: str, state: StoreState) -> list[Kept]:
    """Those of the kept letters, in their order, whose rows are left out in this state of the store."""
    stand: list[Kept] = []
    for kept in every:
        if (kept.run, kept.next, kept.digest) == (run, state.next, state.digest):
            while stand and stand[-1].after > kept.before:
                stand.pop()  # it was not known to be kept, and its rows were refused again
            stand.append(kept)
    while stand and stand[-1].after > state.refused:
        stand.pop()
    return stand if stand and stand[-1].after == state.refused else []


def stored(every: list[Kept], run: str) -> list[Kept]:
    """Those of the letters that the writer has kept whose rows are left out in the bundle that it has just stored."""
    last = every[-1:]
    return standing(every, run, StoreState(last[0].next, last[0].digest, (), refused=last[0].after)) if last else []


class Letters(Protocol):
    """The place of dead letters for the rows that the store of one sink task refuses.

    Every method raises `Unavailable` where the place cannot be read or written now, and may then be called again.
    """

    def keep(self, kept: Kept, incarnation: int) -> None:
        """Keep letters until their bundle is stored, after those that are kept for other rows of it."""
        ...

    def show(self, incarnation: int) -> None:
        """Show all that this incarnation has kept: the store has taken their bundle without these rows."""
        ...

    def settle(self, state: StoreState, incarnation: int) -> None:
        """Show of what was kept up to this incarnation what stands in this state of the store, and drop the rest."""
        ...

    def withdraw(self, position: int) -> None:
        """Remove the letters from this position on: their rows were withdrawn, and others come in their place."""
        ...
