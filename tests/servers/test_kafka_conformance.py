"""`KafkaSink` keeps every promise of the kit, with transactions and with what remains of them without."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from benchmarks.servers.kafka import Broker, Topics
from operators.sinks import KafkaSink, conformance
from operators.sinks.conformance import Subject, bundles, crashes, outages, steps, successions, zombies
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
