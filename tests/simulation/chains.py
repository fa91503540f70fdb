"""Operators that cannot be faked: they use every kind of determinant and hash all that they receive into every output.

Any difference in a task's input, in its order, or in an answer, shows in everything that follows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any

from causal.determinants import register_kind, registered
from causal.ports import Output, PlainChain, Request, Services
from causal.records import batch
from causal.records.batch import Chunk, decode_records, encode_records
from causal.records.values import decode, encode

USER_KIND = "simulated"
if not registered(USER_KIND):
    register_kind(USER_KIND, 99)


def hash_of(value: object) -> int:
    """Return a hash of a value that is the same in every process."""
    return int.from_bytes(blake2b(repr(value).encode(), digest_size=4).digest(), "big")


SLOW_EVERY = 19
"""One position in this many is a record that takes long, where a scenario has such records."""
KEY_CHARACTERS = 32
"""The length of a request's key, in each sort of chain."""
ASKED_MAX = 3
"""Requests that may wait before a chain takes no more records."""


class HashingChain(PlainChain):
    """Passes each record on, with the hash of everything that this task has received so far.

    Args:
        outputs: how many channels to spread over, or to copy to.
        ask: a live answer of the outside world.
        requests: the channel of the keys of its requests; None where no store keeps them.
        named: what begins the name of each of its requests.
        by_number: the number of a request is its whole name: who asks under a name again must ask for the same.
        version: of its code; each but 0 gives other rows.
        timer_ns: how far ahead it sets its timers.
        slow_ns: how long one record in `SLOW_EVERY` takes.
    """

    def __init__(
        self, outputs: int, sink: bool, fan_out: bool, kinds: Sequence[str], ask: Callable[[], bytes],
        slow_ns: int = 0, requests: int | None = None, named: str = "", by_number: bool = False,
        version: int = 0, timer_ns: int = 3_000_000,
    ) -> None:  # fmt: skip
        self._outputs = outputs
        self._sink = sink
        self._fan_out = fan_out
        self._kinds = kinds
        self._ask = ask
        self.state: dict[str, Any] = {"chain": b"", "n": 0, "timer": 0, "asked": {}}
        self._new: list[Request] = []
        self._keys: list[str] = []
        self._requests = requests
        self._named = named
        self._by_number = by_number
        self._version = (version,) if version else ()
        self._slow_ns = slow_ns
        self._timer_ns = timer_ns
        self.spent_ns = 0
        """The time that records have taken since it was last set to 0; the simulated process lets that time pass."""

    def _link(self, *facts: object) -> str:
        linked = self.state["chain"] + repr(facts + self._version).encode()
        self.state["chain"] = blake2b(linked, digest_size=8).digest()
        self.state["n"] += 1
        return str(self.state["chain"].hex())

    def _facts(self, services: Services) -> list[object]:
        kinds, n = self._kinds, self.state["n"]
        facts: list[object] = []
        if "clock" in kinds and n % 3 == 0:
            facts.append(services.now_ns())
        if "random" in kinds and n % 4 == 0:
            facts.append(services.seed())
        if "call" in kinds and n % 5 == 0:
            facts.append(services.call(self._ask))
        if "user" in kinds and n % 6 == 0:
            facts.append(services.user(USER_KIND, self._ask))
        if "timer" in kinds and not self.state["timer"]:
            self.state["timer"] = services.now_ns() + self._timer_ns
        return facts

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        records: list[Any] = []
        for chunk in chunks:
            if chunk.kind == batch.WATERMARK:
                self._link("mark", input, batch.stamp_of(chunk))
            else:
                records += chunk.body if chunk.kind == batch.LISTED else decode_records(chunk.body)
        linked = []
        for record in records:
            if self._slow_ns and identity_of(record)[0] == "p" and identity_of(record)[-1] % SLOW_EVERY == 0:
                self.spent_ns += self._slow_ns
            linked.append((self._link(input, record, *self._facts(services)), record))
            if "ask" in self._kinds and self.state["n"] % 7 == 0:
                self._request(services)
        return self._out(linked, chunks[0].origin_ns) + self._marks() + self._requested()

    def _marks(self) -> list[Output]:
        """Return a watermark after each event; where tasks also fall idle, now and then an idle mark."""
        if self._sink or "marks" not in self._kinds:
            return []
        stamp = batch.IDLE_NS if "idle" in self._kinds and self.state["n"] % 5 == 0 else self.state["n"]
        return [(output, batch.watermark(stamp)) for output in range(self._outputs)]

    def _request(self, services: Services) -> None:
        number, content = self.state["n"], [self.state["chain"].hex(), services.epoch()]
        named = [self._named, number] if self._by_number else [self._named, number, content]
        key = blake2b(repr(named).encode(), digest_size=KEY_CHARACTERS // 2).hexdigest()
        self.state["asked"][number] = body = encode([content, key])
        self._new.append(Request(0, number, body))
        self._keys.append(key)

    def _requested(self) -> list[Output]:
        """Return the keys of the requests of this event, which leave after them."""
        keys, self._keys = self._keys, []
        if not keys or self._requests is None:
            return []
        return [(self._requests, Chunk(batch.ROWS, len(keys), "".join(keys).encode()))]

    def answer(self, operator: int, number: int, body: bytes, services: Services) -> list[Output]:
        request = self.state["asked"].pop(number)
        return self._out([(self._link("answer", number, request, body), ("a", number))], 0)

    def asked(self) -> list[Request]:
        requests, self._new = self._new, []
        return requests

    def outstanding(self) -> list[Request]:
        return [Request(0, number, body) for number, body in self.state["asked"].items()]

    def waiting(self) -> bool:
        return bool(self.state["asked"])

    def full(self) -> bool:
        return len(self.state["asked"]) >= ASKED_MAX

    def ended(self, input: int, services: Services) -> list[Output]:
        self._link("ended", input)
        return []

    def _out(self, linked: list[tuple[str, Any]], origin_ns: int) -> list[Output]:
        if self._sink:
            rows = "".join(json.dumps([link, identity_of(record)]) + "\n" for link, record in linked).encode()
            return [(0, Chunk(batch.ROWS, len(linked), rows, origin_ns))] if linked else []
        split: dict[int, list[Any]] = {}
        for link, record in linked:
            identity = identity_of(record)
            for output in range(self._outputs) if self._fan_out else [hash_of(identity) % self._outputs]:
                split.setdefault(output, []).append((link, identity))
        return [(o, Chunk(batch.RECORDS, len(rs), encode_records(rs), origin_ns)) for o, rs in sorted(split.items())]

    def next_timer_ns(self) -> int | None:
        return self.state["timer"] or None

    def fire(self, due_ns: int, services: Services) -> list[Output]:
        self.state["timer"] = 0
        if "window" in self._kinds:
            services.window(0, due_ns, [(self.state["n"], 1 + self.state["n"] % 3)])
        return self._out([(self._link("timer", due_ns), ("t", due_ns))], 0)

    def finish(self, services: Services) -> list[Output]:
        return self._out([(self._link("end"), ("e", self.state["n"]))], 0)

    def snapshot(self, full: bool, behind: str = "") -> Whole:
        return Whole(encode(self.state))

    def restore(self, parts: Iterable[bytes]) -> None:
        for part in parts:
            self.state = decode(part)


class Whole:
    """A snapshot of a whole state, which is encoded in one step."""

    full = True

    def __init__(self, part: bytes) -> None:
        self._part = part

    def step(self, keys_max: int) -> bool:
        return True

    def parts(self, *before: bytes) -> list[bytes]:
        return [*before, self._part]


def identity_of(record: Any) -> Any:
    """Return the (kind, …) that a record got from its source, timer or end, wherever it has been since."""
    return record if isinstance(record[0], str) and len(record[0]) == 1 else tuple(record[1])


def identities(rows: bytes) -> set[tuple[int, int]]:
    """(partition, position) of every record of a source that these rows stem from."""
    places: set[tuple[int, int]] = set()
    for line in rows.splitlines():
        row = json.loads(line)
        kind, *where = (
            row[1] if isinstance(row, list) else ("p" if isinstance(row["from"], int) else "", row["from"], row["i"])
        )
        if kind == "p":
            places.add((where[0], where[1]))
    return places
