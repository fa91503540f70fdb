"""The world outside the job, which outlives its processes: sinks' stores, the disk, the ingest log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from xxhash import xxh3_128_hexdigest

from causal.errors import Unavailable, fenced
from causal.ports import Bundle, StoreState, WithdrawPoint
from causal.runs import run_id
from operators.sinks.contract import account
from operators.sinks.contract.account import Account

RUN, NEWER_RUN = "run", run_id(2, "ab")


class Violated(AssertionError):
    """A promise of the protocol was broken; the message names the checker and the facts."""


class Store:
    """A sink's store: the rules that ship (`operators.sinks.contract.account`), in memory that survives every crash.

    `written` and `withdrawn` are the observer's own record of what users could see.
    """

    def __init__(self, task: str, requests: bool = False) -> None:
        self.task = task
        self.requests = requests
        """Its rows are keys of requests."""
        self.account = Account(task, RUN, 0)
        self.superseded = False
        """A newer run has begun to write here (D15)."""
        self.unavailable_until_ns = 0
        self.rows: list[bytes] = []
        self.spans: list[tuple[int, int, int]] = []
        """(first, count, incarnation) of each bundle whose rows are visible."""
        self.withdrawn = 0
        self.taken_back: list[bytes] = []
        """The rows that were withdrawn, in no order."""
        self.opened_by = 0

    def reachable(self, now_ns: int) -> bool:
        return now_ns >= self.unavailable_until_ns

    def supersede(self) -> None:
        """A newer run opens the store, which empties it."""
        self.account = Account(self.task, NEWER_RUN, 1)
        self.rows, self.spans = [], []
        self.superseded = True

    def _changed(self, how: str) -> None:
        if self.superseded:
            raise Violated(f"newer run: the older one {how} {self.task}")

    def open(self, incarnation: int) -> StoreState:
        account.check_newest(f"the store of {self.task}", RUN, self.account.run)
        self._changed("opens")
        if incarnation < self.account.incarnation:
            raise fenced(self.task, incarnation)
        self.account.incarnation = incarnation
        self.opened_by = max(self.opened_by, incarnation)
        return self.account.store_state()

    def write(self, bundle: Bundle) -> None:
        self.account.fence(RUN, bundle.incarnation)
        self._changed("writes")
        if bundle.incarnation != self.opened_by:
            raise Violated(
                f"one writer: incarnation {bundle.incarnation} writes, {self.opened_by} has opened {self.task}"
            )
        if self.account.take(bundle) is not None:
            self.spans.append((bundle.first, bundle.count, bundle.incarnation))
            self.rows.append(bundle.rows)

    def truncate(self, epoch: int, incarnation: int) -> None:
        self.account.fence(RUN, incarnation)
        self._changed("truncates")
        self.account.truncate(epoch)

    def withdraw(self, mark: WithdrawPoint, incarnation: int) -> StoreState:
        self.account.fence(RUN, incarnation)
        self._changed("withdraws rows of")
        before = self.account.next
        self.account.withdraw(mark)
        while self.spans and self.spans[-1][0] >= mark.next:
            self.spans.pop()
            self.taken_back.append(self.rows.pop())
        self.withdrawn += before - mark.next
        return self.account.store_state()

    def check(self) -> None:
        """Rows are numbered without gaps, and the account counts all of them."""
        place = 0
        for first, count, _ in self.spans:
            if first != place:
                raise Violated(f"rows of {self.task}: a bundle begins at {first}, {place} rows are visible")
            place += count
        if place != self.account.next:
            raise Violated(f"rows of {self.task}: {place} are visible, its account says {self.account.next}")


def digest_of_parts(parts: Sequence[bytes]) -> str:
    """Return the digest that describes the file with these parts."""
    return xxh3_128_hexdigest(b"\0".join(parts))


@dataclass(slots=True)
class Disk:
    """Files of the job: written aside and renamed, so they are there completely or not at all."""

    files: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    manifests: dict[int, dict[str, tuple[tuple[str, int, str], ...]]] = field(default_factory=dict)
    slow_until_ns: int = 0
    full_until_ns: int = 0

    def write(self, name: str, parts: Sequence[bytes], now_ns: int) -> tuple[str, int, str]:
        if now_ns < self.full_until_ns:
            raise Unavailable(f"{name}: no space is left")
        self.files[name] = tuple(parts)
        return self._described(name)

    def _described(self, name: str) -> tuple[str, int, str]:
        parts = self.files[name]
        return name, sum(map(len, parts)), digest_of_parts(parts)

    def has(self, files: Iterable[tuple[str, int, str]]) -> bool:
        """Return whether none of these files has been removed."""
        return all(name in self.files for name, _, _ in files)

    def read(self, file: tuple[str, int, str]) -> tuple[bytes, ...]:
        """The parts of a file that a manifest or a message names; it must be just that one."""
        if file[0] not in self.files or self._described(file[0]) != tuple(file):
            raise Violated(f"files: {file[0]} is named as a state to restore, and is not there as it was written")
        return self.files[file[0]]


class Partition:
    """One partition of the ingest log: micro-batches appear one after the other and go when they are covered.

    Args:
        make: the record at a position, a pure function.
    """

    def __init__(
        self, number: int, records: int, batch: int, every_ns: int, make: Callable[[int, int], object]
    ) -> None:
        self.number = number
        self.records = records
        self._batch = batch
        self._every_ns = every_ns
        self._make = make
        self.low = 0
        """Below it nothing is left: a complete checkpoint covers it."""

    def available(self, now_ns: int, began_ns: int) -> int:
        batches = max(0, now_ns - began_ns) // self._every_ns
        return min(self.records, batches * self._batch)

    def ready_ns(self, position: int, began_ns: int) -> int:
        """Return when the element at `position` appears."""
        return began_ns + (position // self._batch + 1) * self._every_ns

    def read(self, position: int, count: int) -> list[object]:
        if position < self.low:
            raise Violated(
                f"ingest log: position {position} of partition {self.number} is asked for, {self.low} is left"
            )
        return [self._make(self.number, i) for i in range(position, position + count)]

    def completed(self, position: int) -> None:
        self.low = max(self.low, min(position, self.records) // self._batch * self._batch)
