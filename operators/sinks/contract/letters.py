"""Dead letters of refused rows, which are hidden from readers until the store has accepted their bundle.

A bundle may never be stored because its writer died; another bundle, with other rows at the same positions, then
replaces it. Letters are therefore written twice. They are first *kept*, together with the state that the store will
have once it has accepted the bundle without these rows; they are shown afterwards. The next process asks the store for
its state, shows the letters that were kept for exactly this state, and drops the others. No letter is lost, and no
letter contradicts the store.
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
    """Return the dead letter of a refused row as a line of JSON."""
    facts = {"operator": operator, "key": None, "position": position, "record": record}
    facts |= {"error": f"RowRefused: {reason}", "task": task, "run": run}
    return (encode_json(facts) + "\n").encode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class Kept:
    """The letters for those rows of one bundle that were refused at the same time.

    Attributes:
        run: the run of the job.
        first: the position of the bundle's first row.
        next: the position after the bundle's last row.
        digest: the digest of all rows before `next`.
        before: the total number of rows that the store has left out, excluding these rows.
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
        """The total number of rows that the store has left out, including these rows."""
        return self.before + len(self.letters)

    def packed(self) -> bytes:
        """Return the letters as bytes that `unpacked` can read."""
        return encode(list(astuple(self)))


def unpacked(body: bytes) -> Kept:
    """Return the letters from the bytes that `Kept.packed` returned; a checksum protects the bytes."""
    try:
        return Kept(*decode(body))
    except (CausalError, TypeError, ValueError) as problem:
        invariant(False, "kept letters can be read", problem=problem)
        raise


def standing(every: Iterable[Kept], run: str, state: StoreState) -> list[Kept]:
    """Return, in order, the kept letters whose rows the store has left out in the given state."""
    stand: list[Kept] = []
    for kept in every:
        if (kept.run, kept.next, kept.digest) == (run, state.next, state.digest):
            while stand and stand[-1].after > kept.before:
                stand.pop()  # the writer did not record that it kept these letters, and the rows were refused again
            stand.append(kept)
    while stand and stand[-1].after > state.refused:
        stand.pop()
    return stand if stand and stand[-1].after == state.refused else []


def stored(every: list[Kept], run: str) -> list[Kept]:
    """Return the letters that a writer kept for the rows left out of the bundle that it has just stored."""
    last = every[-1:]
    return standing(every, run, StoreState(last[0].next, last[0].digest, (), refused=last[0].after)) if last else []


class Letters(Protocol):
    """The destination of dead letters for rows that the store of one sink task refuses.

    Every method raises `Unavailable` if the destination cannot be accessed now; the call can then be repeated.
    """

    def keep(self, kept: Kept, incarnation: int) -> None:
        """Keep letters until their bundle is stored; letters kept earlier for other rows of the bundle remain."""
        ...

    def show(self, incarnation: int) -> None:
        """Show all letters that this incarnation has kept, because their bundle was stored without these rows."""
        ...

    def settle(self, state: StoreState, incarnation: int) -> None:
        """Show the letters kept by this or earlier incarnations that match the store's state, and drop the others."""
        ...

    def withdraw(self, position: int) -> None:
        """Remove the letters from `position` on: their rows were withdrawn, and other rows will replace them."""
        ...
