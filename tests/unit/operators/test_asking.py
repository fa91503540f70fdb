"""`call` in one task: requests are state, answers are events, order is kept, marks wait; and the pool that asks."""

from __future__ import annotations

import itertools
import select
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from causal.determinants import ANSWER_BYTES_MAX
from causal.errors import OperatorFailed, PipelineError
from causal.ports import Chain, Output, Request
from causal.records.batch import WATERMARK, stamp_of, watermark
from causal.records.values import decode, encode
from causal.shell.request_pool import RequestPolicy, RequestPool
from operators.kinds.process.outside_calls import askers_of
from operators.stage.watermark_merge import IDLE_NS
from tests.unit.operators.scene import Services, chain_of, config, listed, parts_of, planned, records_in


def asking(order: str = "input", **options: Any) -> Chain:
    def build(stream: Any) -> Any:
        return stream.call("rate", lambda record, key: record * 10, order=order, **options)

    return chain_of(planned(build), "rate/0")


def marks(outputs: list[Output]) -> list[int]:
    return [stamp_of(chunk) for _, chunk in outputs if chunk.kind == WATERMARK]


def perform(chain: Chain, request: Request) -> bytes:
    return askers_of(chain)[request.operator].perform(request.body)[1]


def answer(chain: Chain, request: Request, body: bytes | None = None) -> list[Output]:
    answer_body = perform(chain, request) if body is None else body
    return chain.answer(request.operator, request.number, answer_body, Services())


def test_records_wait_for_their_answers_in_the_order_of_the_input() -> None:
    chain = asking()
    assert records_in(chain.deliver(0, listed([1, 2, 3]), 0, Services())) == []
    first, second, third = chain.asked()
    assert chain.asked() == [] and chain.outstanding() == [first, second, third]
    assert records_in(answer(chain, third)) == [] and records_in(answer(chain, second)) == []
    assert chain.outstanding() == [first] and chain.waiting()
    assert records_in(answer(chain, first)) == [(1, 10), (2, 20), (3, 30)]
    assert not chain.waiting()


def test_or_in_the_order_of_the_answers() -> None:
    chain = asking("completion")
    chain.deliver(0, listed([1, 2, 3]), 0, Services())
    first, second, third = chain.asked()
    assert records_in(answer(chain, third)) == [(3, 30)]
    assert records_in(answer(chain, first)) == [(1, 10)]
    assert records_in(answer(chain, second)) == [(2, 20)]


def test_requests_and_answers_that_wait_are_part_of_the_state() -> None:
    chain = asking()
    chain.deliver(0, listed([1, 2, 3]), 0, Services())
    _, second, _ = chain.asked()
    answer(chain, second)
    restored = asking()
    restored.restore(parts_of(chain))
    assert restored.outstanding() == chain.outstanding()
    first, third = restored.outstanding()
    assert records_in(answer(restored, third)) == []
    assert records_in(answer(restored, first)) == [(1, 10), (2, 20), (3, 30)]
    restored.deliver(0, listed([4]), 3, Services())
    assert restored.asked()[0].number not in (first.number, second.number, third.number)


def test_the_key_names_the_record_and_not_the_attempt() -> None:
    def keys(*batches: list[int]) -> list[str]:
        chain, first = asking(), 0
        for batch in batches:
            chain.deliver(0, listed(batch), first, Services())
            first += len(batch)
        return [decode(request.body)[1] for request in chain.asked()]

    whole = keys([7, 7, 8])
    assert whole == keys([7], [7, 8]) and len(set(whole)) == 3
    assert keys([9, 7, 8])[1:] == whole[1:]


def test_records_made_of_one_record_have_keys_of_their_own() -> None:
    chain = chain_of(planned(lambda s: s.flat_map("twice", lambda r: [r, r]).call("rate", lambda r, k: r)), "rate/0")
    chain.deliver(0, listed([5, 5]), 0, Services())
    assert len({decode(request.body)[1] for request in chain.asked()}) == 4


def test_a_watermark_waits_for_the_records_before_it() -> None:
    chain = asking("completion")
    chain.deliver(0, listed([1, 2]), 0, Services())
    first, second = chain.asked()
    assert marks(chain.deliver(0, [watermark(50)], 2, Services())) == []
    chain.deliver(0, listed([3]), 3, Services())
    [third] = chain.asked()
    assert marks(answer(chain, second)) == []
    assert marks(answer(chain, first)) == [50]
    assert marks(chain.deliver(0, [watermark(60)], 4, Services())) == []
    assert marks(answer(chain, third)) == [60]
    assert marks(chain.deliver(0, [watermark(70)], 5, Services())) == [70]


def test_that_the_input_is_idle_waits_for_the_answers_too() -> None:
    def watermarks_after(chain: Chain, stamp_ns: int) -> list[int]:
        return marks(chain.deliver(0, [watermark(stamp_ns)], 0, Services()))

    chain = asking()
    chain.deliver(0, listed([1, 2]), 0, Services())
    first, second = chain.asked()
    assert watermarks_after(chain, 5_000) == [] and watermarks_after(chain, IDLE_NS) == []
    restored = asking()
    restored.restore(parts_of(chain))
    assert marks(answer(restored, first)) == []
    assert marks(answer(restored, second)) == [5_000, IDLE_NS]
    assert watermarks_after(restored, IDLE_NS) == [], "nothing came since"
    restored.deliver(0, listed([3]), 2, Services())
    assert watermarks_after(restored, IDLE_NS) == []
    restored.deliver(0, listed([4]), 3, Services())
    third, fourth = restored.asked()
    assert marks(answer(restored, third)) == [] == marks(answer(restored, fourth)), "its input was active again"


def test_latency_counts_from_where_the_record_entered() -> None:
    chain = asking()
    chain.deliver(0, [replace(each, origin_ns=70) for each in listed([1])], 0, Services())
    chain.deliver(0, [replace(each, origin_ns=90) for each in listed([2])], 1, Services())
    first, second = chain.asked()
    answer(chain, second)
    assert [chunk.origin_ns for _, chunk in answer(chain, first)] == [70]


def test_a_chain_is_full_when_more_than_a_batch_waits_beside_the_calls() -> None:
    chain, most = asking(concurrency=2), config().batch_elements_max + 2
    chain.deliver(0, listed(list(range(most))), 0, Services())
    assert not chain.full()
    chain.deliver(0, listed([0]), most, Services())
    assert chain.full()
    answer(chain, chain.outstanding()[0])
    assert not chain.full()


def test_what_fails_is_told_with_its_record_and_the_line_that_raised() -> None:
    def rate(record: Any, key: str) -> Any:
        return dict[str, int]()["nope"]

    place = f"{__file__}:{rate.__code__.co_firstlineno + 1} in rate"
    for body, line in (
        (encode([False, "ValueError", "no"]), "CallFailed: ValueError: no .*; record 1"),
        (None, rf"CallFailed: KeyError: 'nope' at {place}; record 1"),
    ):
        chain = chain_of(planned(lambda stream: stream.call("rate", rate)), "rate/0")
        chain.deliver(0, listed([1]), 0, Services())
        with pytest.raises(OperatorFailed, match=f"operator 'rate'.*{line}"):
            answer(chain, chain.outstanding()[0], body)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"concurrency": 0}, "has concurrency 0"),
        ({"retries": -1}, "has retries -1"),
        ({"order": "any"}, "has order 'any'"),
        ({"timeout_s": 0}, "has timeout_s 0"),
        ({"combine": 3}, "combine of call 'rate' was given a int"),
    ],
)
def test_wrong_options_are_refused_when_the_pipeline_is_built(options: dict[str, Any], line: str) -> None:
    with pytest.raises(PipelineError, match=line):
        planned(lambda stream: stream.call("rate", lambda record, key: record, **options))


# The pool.


def late(timeout_s: float) -> bytes:
    return b"late"


def drained(pool: RequestPool, count: int) -> list[tuple[int, bytes]]:
    """Return the next `count` answers; a test that waits here forever is ended from outside."""
    answers: list[tuple[int, bytes]] = []
    while len(answers) < count:
        next_ns = pool.next_ns()
        wait_s = 1.0 if next_ns is None else max(0.0, (next_ns - time.monotonic_ns()) / 1e9)
        select.select([pool.wake], [], [], wait_s)
        answers += [(answered.number, answered.body) for answered in pool.answers()]
    return answers


def pool_of(perform: Callable[[bytes], tuple[bool, bytes]], **options: Any) -> RequestPool:
    return RequestPool({3: RequestPolicy(perform, late, **{"concurrency": 4, **options})})


def test_no_more_calls_run_than_may() -> None:
    running, most, lock = [0], [0], threading.Lock()

    def perform(body: bytes) -> tuple[bool, bytes]:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.002)
        with lock:
            running[0] -= 1
        return True, body

    pool = pool_of(perform)
    pool.ask([Request(3, number, b"%d" % number) for number in range(40)])
    assert sorted(drained(pool, 40)) == [(number, b"%d" % number) for number in range(40)]
    assert most[0] == 4
    pool.close()


@pytest.mark.parametrize(("retries", "last"), [(5, b"try 3"), (1, b"try 2")], ids=["until it succeeds", "in vain"])
def test_a_call_is_tried_again_and_only_its_last_outcome_counts(retries: int, last: bytes) -> None:
    tries: list[bytes] = []

    def perform(body: bytes) -> tuple[bool, bytes]:
        tries.append(body)
        return len(tries) == 3, b"try %d" % len(tries)

    pool = pool_of(perform, retries=retries, backoff_s=0.001)
    pool.ask([Request(3, 1, b"x")])
    assert drained(pool, 1) == [(1, last)]
    pool.close()


def test_between_two_tries_it_rests_twice_as_long_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = [1]
    monkeypatch.setattr("causal.shell.request_pool.monotonic_ns", lambda: now_ns[0])
    tries: list[int] = []

    def perform(body: bytes) -> tuple[bool, bytes]:
        tries.append(now_ns[0])
        return len(tries) == 3, body

    pool = pool_of(perform, retries=2, backoff_s=1.0)
    pool.ask([Request(3, 1, b"x")])
    for _ in range(2):
        select.select([pool.wake], [], [], 60)  # that a call has come back wakes the task
        assert pool.answers() == []
        due_ns = pool.next_ns()
        assert due_ns is not None
        now_ns[0] = due_ns - 1
        assert pool.answers() == [] and pool.next_ns() == due_ns, "not before it is due"
        now_ns[0] = due_ns
        assert pool.answers() == []
    assert drained(pool, 1) == [(1, b"x")]
    assert [later - earlier for earlier, later in itertools.pairwise(tries)] == [1_000_000_000, 2_000_000_000]
    pool.close()


def hanging(
    monkeypatch: pytest.MonkeyPatch, otherwise: Callable[[bytes], tuple[bool, bytes]] = lambda body: (True, body)
) -> tuple[RequestPool, threading.Event, list[int]]:
    """Return a pool of two whose calls of b"hang" come back when the event is set; the list holds the time in ns."""
    release, now_ns = threading.Event(), [1]
    monkeypatch.setattr("causal.shell.request_pool.monotonic_ns", lambda: now_ns[0])

    def perform(body: bytes) -> tuple[bool, bytes]:
        return (release.wait(60), body) if body == b"hang" else otherwise(body)

    return pool_of(perform, concurrency=2, timeout_s=1.0, operator="rate"), release, now_ns


def test_calls_out_of_time_free_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, release, now_ns = hanging(monkeypatch)
    pool.ask([Request(3, 0, b"hang"), Request(3, 1, b"hang"), Request(3, 2, b"a")])
    assert pool.answers() == [] and pool.abandoned == ""
    now_ns[0] += 1_000_000_000
    assert drained(pool, 3) == [(0, b"late"), (1, b"late"), (2, b"a")]
    assert pool.abandoned.startswith("operator 'rate': 2 or more of its calls have not returned within 1 s")
    assert pool.counters() == {"calls": 0, "calls_abandoned": 2, "calls_oldest_s": 1.0}
    release.set()
    while pool.abandoned:
        select.select([pool.wake], [], [], 1.0)
        assert pool.answers() == [], "no record waits for them any more"
    pool.close()


def test_too_many_calls_that_never_return_end_the_task_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, release, now_ns = hanging(monkeypatch)
    pool.ask([Request(3, number, b"hang") for number in range(12)])
    answered = 0
    for _ in range(4):
        now_ns[0] += 1_000_000_000
        answered += len(pool.answers())
    assert answered == 8
    now_ns[0] += 1_000_000_000
    with pytest.raises(OperatorFailed, match="operator 'rate': 10 calls timed out after 1 s and have not"):
        pool.answers()
    release.set()
    pool.close()


@pytest.mark.parametrize("over", [0, 1], ids=["as large as may be", "one byte more"])
def test_an_answer_that_is_too_large_is_a_failure_that_names_its_size(over: int) -> None:
    chain = chain_of(planned(lambda s: s.call("rate", lambda record, key: bytes(record))), "rate/0")
    chain.deliver(0, listed([ANSWER_BYTES_MAX - 7 + over]), 0, Services())
    [request] = chain.asked()
    body = perform(chain, request)
    assert decode(body)[0] is (over == 0)
    if not over:
        assert len(body) == ANSWER_BYTES_MAX
        return
    with pytest.raises(
        OperatorFailed, match="operator 'rate'.*AnswerTooLarge.* has 16,777,217 bytes, but the limit is 16,777,216"
    ):
        answer(chain, request, body)


def test_a_call_that_is_left_behind_keeps_no_thread_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2)

    def meets(body: bytes) -> tuple[bool, bytes]:
        try:
            together.wait(60)
        except threading.BrokenBarrierError:
            return False, b"alone"
        return True, body

    pool, release, now_ns = hanging(monkeypatch, meets)
    pool.ask([Request(3, 0, b"hang")])
    assert pool.answers() == []
    now_ns[0] += 1_000_000_000
    assert drained(pool, 1) == [(0, b"late")]
    pool.ask([Request(3, 1, b"a"), Request(3, 2, b"b")])
    assert sorted(drained(pool, 2)) == [(1, b"a"), (2, b"b")], "both ran at the same time, next to the one left behind"
    release.set()
    pool.close()


def test_without_anybody_who_asks_there_is_nothing_to_wake_up_for() -> None:
    pool = RequestPool({})
    assert pool.wake == -1 and pool.answers() == [] and pool.next_ns() is None
    pool.close()
