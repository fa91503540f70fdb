"""`call`, which makes one request to the outside world per record and emits the record with the response.

Many requests can be outstanding at the same time.  A request is part of the state from the arrival of its record, and
a response is a logged event.  A replay uses the logged responses and sends no requests. A request that has no response
at the end of the replay is sent (again) with the same idempotency key.  The key identifies the request by its unique
number in the task's order of records. A request is sent only after the determinants of that order have been stored
(`operators.sinks.journaled.request_store`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from operator import itemgetter
from typing import Any

from causal.errors import CausalError, invariant
from causal.ports import Request
from causal.records.values import NotCarried, decode, encode
from causal.shell.request_pool import RequestPolicy
from operators.graph import Node
from operators.records.ownership import kept
from operators.stage.branch import Numbers
from operators.stage.calls import CallFailed, outcome, raised
from operators.stage.failures import NO_KEY
from operators.stage.scope import Scope
from operators.stage.stages import Due, Stage
from operators.stage.watermark_merge import END_NS, IDLE_NS
from operators.state.keyed_tables import KeyedTable
from operators.state.snapshot_parts import REPORTED

LATE = "TimeoutError"
UNSENT = "unsent"


class RequestTable(KeyedTable):
    """A table (number, task) -> [request, key, answer or None]; a request belongs to the key group of its key."""

    __slots__ = ("task", "numbers")

    def __init__(self, operator: str, key_groups: int, task: str, numbers: Numbers) -> None:
        super().__init__(f"{operator}:asked", operator, key_groups, group_of=self._key_of)
        self.task = task
        self.numbers = numbers

    def renumber(self, next: Callable[[], int]) -> None:
        """Renumber the requests of several tasks; those of a single task keep the numbers to which watermarks refer."""
        requests = sorted(self.values.items())
        mixed = len({task for (_, task), _ in requests}) > 1
        self.values.clear()
        for (number, _), value in requests:
            self.values[self.numbers() if mixed else number, self.task] = value

    def inspect(self, key: Any) -> Any:
        """Return [record, whether there is a response] for each call of the key, in the order of the requests."""
        calls = [(pair, body, answer) for pair, (body, own, answer) in self.values.items() if own == key]
        return [[decode(body)[0], answer is not None] for _, body, answer in sorted(calls, key=itemgetter(0))] or None

    def _key_of(self, pair: tuple[int, str]) -> Any:
        known = self.values.get(pair)
        return None if known is None else known[1]


class AskStage(Stage):
    """One task of `call(name, fn)`."""

    asks = True
    withholds = True
    moves = True
    traces = False

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        options = node.options
        self._combine: Callable[[Any, Any], Any] = options["combine"]
        self._in_order = options["order"] == "input"
        self._keyed = node.keyed
        self._scope = scope
        self._numbers = Numbers()
        """A counter used only by this stage, so that a request's number does not depend on batches."""
        self._generation = 0
        """The epoch of the last change of the job graph."""
        self._table = RequestTable(node.name, scope.config.key_groups, scope.task, self._numbers)
        self._waiting: dict[int, Request] = {}
        self._new: list[Request] = []
        self._new_keys: list[str] = []
        """The idempotency keys of this event's requests."""
        self._marks: list[list[int]] = []
        """[watermark, number of the last request before it]; the watermark waits for the requests up to it."""
        self._mark_ns: int | None = None
        self._idle = False
        """Whether the input is idle; idleness is passed on when no request is outstanding."""
        self._unsent = False
        """Whether requests that held back the watermark of an earlier task may be in other tasks now."""
        self._origins_ns: dict[int, int] = {}
        """The time at which each request's record entered the job; unknown after a restore."""
        self._full_from: int = options["concurrency"] + scope.config.batch_elements_max
        self.asker = RequestPolicy(
            partial(_ask, node.subject),
            _late,
            options["concurrency"],
            options["timeout_s"],
            options["retries"],
            options["backoff_s"],
            node.name,
        )

    # Records.

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Any]:
        table, numbers, fresh = self._table, self._numbers, dict[tuple[int, str], Any]()
        origin_ns = self._scope.arrival.origin_ns
        named = [self._scope.config.run, self.name, self._scope.task, self._generation]
        for index, record in enumerate(records):
            number = numbers()
            try:
                key = blake2b(encode([*named, number, record]), digest_size=16).hexdigest()
                body = encode([record, key])
            except NotCarried as problem:
                self.failed(index, record, problem, keys[index] if keys else NO_KEY)
                continue
            self._new_keys.append(key)
            fresh[number, self._scope.task] = [body, keys[index] if keys else None, None]
            self._open(number, body)
            if origin_ns:
                self._origins_ns[number] = origin_ns
        self._idle = self._idle and not fresh
        table.touch(fresh)
        table.values.update(fresh)
        return []

    def _open(self, number: int, body: bytes) -> None:
        request = self._waiting[number] = Request(self.ordinal, number, body)
        self._new.append(request)

    def request_of(self, number: int) -> tuple[Any, Any]:
        """Return the record of an outstanding request, and its key, which is None without key_by."""
        body, key, _ = self._table.values[number, self._scope.task]
        return decode(body)[0], key

    # Answers.

    @property
    def full(self) -> bool:
        return len(self._table.values) > self._full_from

    def asked(self) -> list[Request]:
        new, self._new = self._new, []
        return new

    def requested(self) -> list[str]:
        keys, self._new_keys = self._new_keys, []
        return keys

    def outstanding(self) -> list[Request]:
        return list(self._waiting.values())

    def answer(self, number: int, body: bytes) -> list[Any]:
        request = self._waiting.pop(number, None)
        invariant(request is not None, "an answer belongs to an outstanding request", operator=self.name, number=number)
        values, pair = self._table.values, (number, self._scope.task)
        self._table.touch((pair,))
        values[pair] = [*values[pair][:2], body]
        if not self._in_order:
            self._scope.arrival.origin_ns = self._origins_ns.pop(number, 0)
            return self._combined([values.pop(pair)])
        ready: list[Any] = []
        origins_ns: list[int] = []
        while values:
            first = next(iter(values))
            if values[first][2] is None:
                break
            self._table.touch((first,))
            ready.append(values.pop(first))
            origins_ns.append(self._origins_ns.pop(first[0], 0))
        self._scope.arrival.origin_ns = min(filter(None, origins_ns), default=0)
        return self._combined(ready)

    def _combined(self, answered: Iterable[Sequence[Any]]) -> list[Any]:
        out: list[Any] = []
        for request, key, body in answered:
            record, answer = decode(request)[0], decode(body)
            try:
                if not answer[0]:
                    self.count("timed_out", answer[1] == LATE)
                    raise CallFailed(*answer[1:])
                out.append(kept(self._combine(record, answer[1])))
            except CausalError:
                raise
            except Exception as problem:
                self.failures.failed(self.name, key if self._keyed else NO_KEY, None, record, problem)
        return out

    # Event time: a watermark waits for the requests that precede it.

    def passes(self, mark_ns: int) -> int | None:
        values = self._table.values
        if mark_ns == END_NS:
            return mark_ns
        if mark_ns == IDLE_NS:
            self._idle = bool(values)
            return None if self._idle else mark_ns
        if self._mark_ns is None or mark_ns > self._mark_ns:
            self._mark_ns, self._idle = mark_ns, False
            newest = next(reversed(values))[0] if values else -1
            if self._marks and self._marks[-1][1] == newest:
                self._marks.pop()
            self._marks.append([mark_ns, newest])
        oldest = next(iter(values))[0] if values else None
        passed = None
        while self._marks and (oldest is None or self._marks[0][1] < oldest):
            passed = self._marks.pop(0)[0]
        return passed

    def next_ns(self) -> int | None:
        return 0 if self._unsent else None

    def fire(self, entries: Sequence[Due]) -> list[Any]:
        """Emit nothing; the chain then passes on the last watermark received unless a request holds it back."""
        self._unsent = False
        return []

    def rests(self) -> bool:
        rests = self._idle and not self._table.values
        self._idle = self._idle and not rests
        return rests

    # Snapshots.

    def tables(self) -> list[KeyedTable]:
        return [self._table]

    def header(self) -> dict[str, Any]:
        header = {
            "marks": [list(each) for each in self._marks],
            REPORTED: self._mark_ns,
            "idle": self._idle,
            UNSENT: self._unsent,
        }
        return {**header, "next": self._numbers.next, "generation": self._generation}

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        self._marks = [list(each) for each in header.get("marks", ())]
        self._mark_ns = header.get(REPORTED)
        self._idle = header.get("idle", False)
        self._unsent = header.get(UNSENT, False)
        self._numbers.next = header.get("next", 0)
        self._generation = header.get("generation", 0)

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Continue after the highest number; drop the waiting watermarks, because the last one received is passed.

        Otherwise a task that takes over no request would hold back event time until its next watermark.
        """
        return {"next": max((header.get("next", 0) for header in headers), default=0), UNSENT: True}

    def changed(self, epoch: int) -> None:
        self._generation = epoch

    def restored(self) -> None:
        values = self._table.values
        requests = sorted(values.items())
        values.clear()
        values.update(requests)
        self._new = []
        self._new_keys = []
        self._origins_ns = {}
        self._waiting = {
            number: Request(self.ordinal, number, body) for (number, _), (body, _, answer) in requests if answer is None
        }


def _ask(fn: Callable[[Any, str], Any], body: bytes) -> tuple[bool, bytes]:
    """Run `fn` on a pool thread."""
    record, key = decode(body)
    try:
        return outcome(lambda: fn(record, key), "call")
    except BaseException as problem:  # the thread must survive, and the request needs a response
        return False, raised(problem)


def _late(timeout_s: float) -> bytes:
    return encode([False, LATE, f"no answer within {timeout_s:g} s"])


def askers_of(chain: object) -> dict[int, RequestPolicy]:
    """Return the request policies of a chain's operators, by ordinal."""
    stages: Sequence[Stage] = getattr(chain, "stages", ())
    return {stage.ordinal: stage.asker for stage in stages if isinstance(stage, AskStage)}
