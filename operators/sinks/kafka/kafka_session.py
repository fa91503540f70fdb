"""The clients of one sink task's store, and the two steps that they can make: read the side topics, append records."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka

from causal.errors import RowRefused, Unavailable, invariant
from operators.kafka.kafka_cluster import Cluster
from operators.kafka.kafka_handles import Handle
from operators.sinks.contract.account import Account
from operators.sinks.kafka.side_topics import RunLog, account_topic, are_there, make_topics, read_to_end, runs_topic
from operators.sinks.messages.account_log import AccountLog

_POLL_S = 0.05
LINGER_MS = 5
READS = {
    "group.id": "causal",  # no offset is ever committed, but a consumer must have a group
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 5,
    "fetch.max.bytes": 64 << 20,
    "max.partition.fetch.bytes": 64 << 20,
    "allow.auto.create.topics": False,
}


@dataclass(frozen=True, slots=True)
class Target:
    """The topic and the options of a sink."""

    cluster: Cluster
    topic: str
    existing: str
    transactions: bool
    trim: bool
    timeout_ms: int
    upsert: bool = False

    @property
    def timeout_s(self) -> float:
        """The time limit of one call."""
        return self.timeout_ms / 1000

    def reads(self) -> dict[str, Any]:
        """Return the options of its consumers."""
        return {**READS, "socket.timeout.ms": max(self.timeout_ms, 1000)}

    def writes(self, name: str) -> dict[str, Any]:
        """Return the options of a producer with this transactional.id."""
        # Rows of a large bundle fill batches; the flush or commit at its end does not wait for the rest of this time.
        idempotent = {"enable.idempotence": True, "acks": "all", "linger.ms": LINGER_MS}
        if self.transactions:
            idempotent |= {"transactional.id": name, "delivery.report.only.error": True}
        preferred = {"partitioner": "murmur2_random", "message.timeout.ms": self.timeout_ms}
        return {**preferred, **self.cluster.options, **idempotent, "socket.timeout.ms": max(self.timeout_ms, 1000)}


class Session:
    """A reader and, once it is needed, a producer and an administrator. Only one thread may use it at a time.

    Args:
        topic: the topic of the account, if it is another task's.

    State: `end` is the offset after the last record of the account's topic, as far as this process has seen or written
    it; without transactions, any other writer is noticed by it.
    """

    def __init__(self, target: Target, task: str, topic: str = "") -> None:
        self._target = target
        self._task = task
        self.runs_topic = runs_topic(target.topic)
        self.account_topic = topic or account_topic(target.topic, task)
        self.reader = Handle(target.cluster, "consumer", target.reads())
        self._admin: Handle | None = None
        self._writer: Handle | None = None
        self._begun = False
        self._failed: list[tuple[Any, Any]] = []
        self.end = 0

    @property
    def gone(self) -> bool:
        """Whether its clients belong to the process that forked this one."""
        return self.reader.gone

    @property
    def ready(self) -> bool:
        """Whether the writer has fenced every earlier one."""
        return self._begun

    @property
    def admin(self) -> Handle:
        """The administrator, which is made once and closed with the other clients."""
        if self._admin is None:
            self._admin = Handle(self._target.cluster, "administrator")
        return self._admin

    def prepare(self) -> None:
        """Make the clients, which begin to connect without waiting, and fence and write nothing."""
        self._made_writer()

    def _made_writer(self) -> Handle:
        if self._writer is None:
            self._writer = Handle(self._target.cluster, "producer", self._target.writes(self.account_topic))
        return self._writer

    def begin(self) -> None:
        """Fence every earlier writer of this task, and end what it had not committed."""
        if not self._begun:
            writer = self._made_writer()
            if self._target.transactions:
                writer.client.init_transactions(self._target.timeout_s)
            self._begun = True

    def read(self) -> tuple[RunLog, Account | None]:
        """Return the runs and the account as they are committed; both topics are made if they are missing."""
        target = self._target
        topics = (self.runs_topic, self.account_topic)
        missing = [
            topic
            for topic, there in zip(topics, are_there(self.reader, topics, target.timeout_s), strict=True)
            if not there
        ]
        if missing:
            make_topics(self.admin, missing, target.timeout_s)
            deadline_s = time.monotonic() + target.timeout_s
            while not all(are_there(self.reader, missing, target.timeout_s)):
                if time.monotonic() > deadline_s:
                    raise Unavailable(f"{target.cluster.place}: the new topic {missing[0]} is not known yet; retry")
                time.sleep(_POLL_S)
        runs = RunLog(f"{target.cluster.place}: topic {self.runs_topic}")
        log = AccountLog(self._task, f"{target.cluster.place}: topic {self.account_topic}")
        ends = read_to_end(self.reader, {self.runs_topic: runs.take, self.account_topic: log.take}, target.timeout_s)
        self.end = ends[self.account_topic]
        return runs, log.account

    # -- writing ------------------------------------------------------------------------------------------------

    def append(self, messages: Sequence[bytes], rows: Callable[[Callable[..., None]], None] | None = None) -> None:
        """Append messages to the account's topic, with rows before them, in one transaction.

        Without transactions, rows follow only after all messages of an earlier call have arrived, and the offsets of
        the messages show whether another process has written in between.

        Args:
            rows: called with a function that produces one row.

        Raises:
            confluent_kafka.KafkaException: the cluster refuses or does not answer; nothing is committed, or it is not
                known.
            RowsFailed: rows were not accepted, and nothing is committed.
        """
        invariant(self._begun and self._writer is not None, "a writer has fenced others before it writes")
        client = self._writer.client  # type: ignore[union-attr]
        transactions, timeout_s = self._target.transactions, self._target.timeout_s
        self._failed = []
        if transactions:
            client.begin_transaction()
        try:
            if rows is not None:
                rows(self._produced)
            offsets: list[int] = []
            for message in messages:
                self._produce(
                    self.account_topic, message, None, None, 0, None if transactions else _noting(offsets, self._failed)
                )
            if transactions:
                client.commit_transaction(timeout_s)
            elif client.flush(timeout_s):
                raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(-192))  # _MSG_TIMED_OUT
        except confluent_kafka.KafkaException as problem:
            error = problem.args[0]
            if transactions and self._failed and error.txn_requires_abort():
                client.abort_transaction(timeout_s)
                raise RowsFailed(self._failed) from problem
            raise
        except RowRefused:
            if transactions:
                client.abort_transaction(timeout_s)
            raise
        if self._failed:
            raise RowsFailed(self._failed)
        if not transactions and messages:
            self._check_offsets(offsets)

    def _check_offsets(self, offsets: Sequence[int]) -> None:
        if list(offsets) != list(range(self.end, self.end + len(offsets))):
            raise Intruded
        self.end += len(offsets)

    def _produced(self, value: bytes | None, key: bytes | None, headers: list[Any]) -> None:
        self._produce(self._target.topic, value, key, headers, -1, self._row_reported)

    def _row_reported(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append((error, message))

    def _produce(
        self, topic: str, value: bytes | None, key: bytes | None, headers: Any, partition: int, report: Any
    ) -> None:
        client = self._writer.client  # type: ignore[union-attr]
        deadline_s = 0.0
        while True:
            try:
                client.produce(topic, value, key, partition, report, headers=headers)
                return
            except BufferError:
                deadline_s = deadline_s or time.monotonic() + self._target.timeout_s
                if time.monotonic() > deadline_s:
                    raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(-192)) from None
                client.poll(_POLL_S)

    def reported(self) -> Any:
        """Return the last error that a client has reported outside of a call, or None."""
        handles = [each for each in (self._writer, self.reader, self._admin) if each is not None and not each.gone]
        for handle in handles:
            handle.listen()
        return next((each.reported for each in handles if each.reported is not None), None)

    def close(self) -> None:
        """Close the clients; an open transaction is left to the next writer, which aborts it."""
        for handle in (self._writer, self._admin, self.reader):
            if handle is not None:
                handle.close()


class RowsFailed(Exception):
    """Rows that the cluster did not accept, each as (error, message)."""

    def __init__(self, rows: Sequence[tuple[Any, Any]]) -> None:
        super().__init__(f"{len(rows)} rows were not accepted")
        self.rows = tuple(rows)


class Intruded(Exception):
    """Another process has written to the account's topic since this one last read it (without transactions)."""


def _noting(offsets: list[int], failed: list[tuple[Any, Any]]) -> Callable[[Any, Any], None]:
    def report(error: Any, message: Any) -> None:
        if error is None:
            offsets.append(message.offset())
        else:
            failed.append((error, message))

    return report
