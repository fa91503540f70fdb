"""`KafkaSink` keeps every promise of the kit, with transactions and with what remains of them without."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any, cast

import pytest
from xxhash import xxh3_64_intdigest

from benchmarks.servers.kafka import Broker, Topics
from causal.errors import PipelineError, RowRefused
from operators.sinks import KafkaSink, conformance
from operators.sinks.conformance import Subject, bundles, crashes, outages, steps, successions, upserting, zombies
from operators.sinks.conformance.subject import bundle_at
from operators.sinks.kafka.side_topics import account_topic
from operators.sinks.messages.account_log import AccountLog
from tests.members import except_for

NUMBERS = count()
AWAY = outages.waits_for_an_unavailable_store
NOT_SHARED = (AWAY, crashes.takes_a_half_written_bundle_for_nothing)
"""Ends the broker; a transaction covers a bundle."""
SHARED = tuple(check for check in conformance.CHECKS if check not in NOT_SHARED)
STEP_BY_STEP = (
    successions.dies_at_every_step_of_a_replacement,
    crashes.dies_at_every_step_of_a_write,
    zombies.fences_zombies_at_every_step_of_a_write,
)
PLACES, SPREAD = 12, 4
"""The steps at which a run dies in every run; in a campaign it dies at as many as a check has."""


TRIMMED = (*bundles.CHECKS, *successions.CHECKS[:1])
"""None of them kills a writer: noida-db hides what a producer commits after one of its transactions was aborted that
ended before the first record."""


def fresh(topics: Topics, **options: Any) -> Subject:
    """Return a new topic with one partition, in which rows stay in order."""
    topic = topics.create(f"rows-{next(NUMBERS)}")
    options = {"trim": False, "options": {"message.max.bytes": 600_000}, "timeout_ms": 3000, **options}
    sink = KafkaSink(topics.servers, topic, **options)

    def read(task: str) -> list[Any]:
        rows = [row for row in topics.rows(topic) if row.headers["task"] == task.encode()]
        by_position: dict[int, bytes | None] = {}
        for row in rows:
            value = by_position.setdefault(int(row.headers["position"]), row.value)
            assert value == row.value, "a row that comes again is the same"
        assert len(by_position) == len(rows) or not options.get("transactions", True), "no row comes again"
        end = 1 << 62 if options.get("transactions", True) else counted(topics, topic, task)
        return [json.loads(value or b"") for position, value in sorted(by_position.items()) if position < end]

    successor = KafkaSink(topics.servers, topic, **{**options, "existing": "replace", "transactions": True})
    replacing = successor if options.get("transactions", True) else sink
    return Subject(sink, read, poison=lambda: {"text": "x" * 700_000}, replacing=replacing)


def counted(topics: Topics, topic: str, task: str) -> int:
    """Return the position of the account: without transactions, rows above it may be there, and will come again."""
    log = AccountLog(task, topic)
    for row in topics.rows(account_topic(topic, task)):
        log.take(row.value or b"")
    return log.account.next if log.account is not None else 0


def named(check: Callable[[Subject], None]) -> str:
    return check.__name__


@pytest.mark.parametrize("check", except_for(SHARED, *STEP_BY_STEP), ids=named)
def test_a_topic_conforms(check: Callable[[Subject], None], shared_kafka: Topics) -> None:
    check(fresh(shared_kafka))


@pytest.mark.parametrize("check", TRIMMED, ids=named)
def test_a_topic_whose_account_is_trimmed_conforms(check: Callable[[Subject], None], shared_kafka: Topics) -> None:
    check(fresh(shared_kafka, trim=True))


@pytest.mark.parametrize("check", bundles.CHECKS, ids=named)
def test_a_topic_without_transactions_repeats_rows_at_most(
    check: Callable[[Subject], None], shared_kafka: Topics
) -> None:
    check(fresh(shared_kafka, transactions=False))


def by_key(topics: Topics) -> Subject:
    """Return a new compacted topic with one partition, for rows by key."""
    topic = topics.create(f"rows-{next(NUMBERS)}", 1, **{"cleanup.policy": "compact,delete"})
    limit = {"message.max.bytes": 600_000}
    sink = KafkaSink(topics.servers, topic, trim=False, options=limit, timeout_ms=3000, upsert=True)

    def read(task: str) -> dict[str, Any]:
        last = {(row.key or b"").decode(): row.value for row in topics.rows(topic) if task.encode() in (row.key or b"")}
        return {key: json.loads(value) for key, value in last.items() if value is not None}

    def oversized() -> dict[str, Any]:
        return {"n": 1, "text": "x" * 700_000}

    return Subject(sink, read, seen=upserting.rows_seen, row=upserting.revision_of, poison=oversized)


@pytest.mark.parametrize("check", except_for(SHARED, *STEP_BY_STEP), ids=named)
def test_a_compacted_topic_conforms(check: Callable[[Subject], None], shared_kafka: Topics) -> None:
    check(by_key(shared_kafka))


def test_a_topic_that_cannot_keep_a_table_is_refused(shared_kafka: Topics) -> None:
    for policy, existing, message in (
        (
            "delete",
            "refuse",
            "loses rows of the table after a time .cleanup.policy=delete.; set cleanup.policy=compact",
        ),
        ("compact", "replace", "which is only compacted; set cleanup.policy=compact,delete"),
    ):
        topic = shared_kafka.create(f"rows-{next(NUMBERS)}", 1, **{"cleanup.policy": policy})
        with pytest.raises(PipelineError, match=message):
            KafkaSink(shared_kafka.servers, topic, existing=existing, upsert=True).check()
    KafkaSink(shared_kafka.servers, topic, upsert=True).check()
    with pytest.raises(PipelineError, match="leave key and headers out"):
        KafkaSink(shared_kafka.servers, topic, key=str, upsert=True)


def test_of_several_revisions_of_a_key_only_the_last_is_written(shared_kafka: Topics) -> None:
    """A refused revision replaces none."""
    subject = by_key(shared_kafka)
    texts = ("a", "b", "c", "d", "x" * 700_000)  # of one key: a, c and the refused one
    rows = [subject.encoded({"n": number % 2, "text": text}) for number, text in enumerate(texts)]
    store, state = subject.opened()
    digest = state.digest
    for row in rows:
        digest = xxh3_64_intdigest(row, digest)
    bundle = replace(bundle_at(subject, state, len(rows)), rows=b"".join(rows), digest=digest)
    with pytest.raises(RowRefused, match="larger than message.max.bytes"):
        store.write(bundle)
    store.write(replace(bundle, refused=((4, "too large"),)))
    store.close()
    written = [json.loads(row.value or b"")["text"] for row in shared_kafka.rows(cast(KafkaSink, subject.sink).topic)]
    assert written == ["c", "d"]


@pytest.mark.parametrize("check", bundles.CHECKS, ids=named)
def test_a_topic_of_another_broker_conforms_while_nothing_is_aborted(
    check: Callable[[Subject], None], shared_tansu: Topics
) -> None:
    check(fresh(shared_tansu))


@pytest.mark.parametrize("check", bundles.CHECKS, ids=named)
def test_a_topic_of_another_broker_repeats_rows_at_most(check: Callable[[Subject], None], shared_tansu: Topics) -> None:
    check(fresh(shared_tansu, transactions=False))


def test_a_step_by_step_sample_of_a_replacement(shared_kafka: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "PLACES_MAX", PLACES)
    monkeypatch.setattr(steps, "SPREAD_MAX", SPREAD)
    successions.dies_at_every_step_of_a_replacement(fresh(shared_kafka))


def test_a_broker_that_is_killed_is_waited_for(own_kafka: Broker) -> None:
    subject = fresh(own_kafka.topics)
    subject.away = own_kafka.down
    AWAY(subject)
