"""The store of one sink task, in a topic of a Kafka cluster; see `kafka_sink` for its promises.

Order in `open`. The account is read first, because a process that may not write must not disturb the one that may. Then
`init_transactions` fences every earlier producer and ends its open transaction, so the account is read again, and a
claim is written. The cluster's own fence is only a hint: a process that finds itself fenced reads the account, which
names the owner, and continues with a new producer if it does.

A new run first makes the output its own, in the topic of runs: it records that it has begun, claims the account of
every other task, and only then looks where the rows of earlier runs end. From the first record on, older runs are
refused; from the last one on, its own tasks write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import closing, contextmanager
from typing import Any

import confluent_kafka

from causal.errors import CausalError, RowRefused, Unavailable, fenced, invariant
from causal.ports import Bundle
from operators.kafka.kafka_errors import FENCED, OVERSIZED, name_of, translated
from operators.kafka.kafka_handles import Handle, partitions_of
from operators.sinks.contract.account import Account, Part, check_newest, foreign_rows
from operators.sinks.contract.account_store import Before, ConnectedStore
from operators.sinks.kafka.kafka_session import Intruded, RowsFailed, Session, Target
from operators.sinks.kafka.side_topics import (
    RunLog,
    are_there,
    delete_before,
    offsets_of,
    read_to_end,
    run_message,
    runs_topic,
)
from operators.sinks.messages.account_log import claim_record, logs_record, messages_of, step_record, whole_record
from operators.sinks.messages.message_rows import POSITION, TASK, Row, rows_in

RETURN_S = 60.0
"""The longest time for which the rows of an earlier run may be looked at or deleted."""


class Disturbed(Unavailable):
    """Another process fenced this one, or wrote to its account, without being the owner."""


class KafkaStore(ConnectedStore[Session]):
    """The rows and the account of one sink task. Only one thread may use the store at a time."""

    _errors = (confluent_kafka.KafkaException, RowsFailed, Intruded)  # type: ignore[assignment]
    _losses = "its topics were deleted, or brokers lost their last records"

    def __init__(self, target: Target, task: str) -> None:
        super().__init__(task, target.cluster.place)
        self._target = target
        self._where = f"{target.cluster.place}: topic {target.topic}"
        self._reported: Any = None
        self._bundle: Bundle | None = None
        self._prepared: Session | None = None

    def prepare(self) -> None:
        """See `causal.ports.PreparedStore.prepare`."""
        if self._prepared is None:
            self._prepared = Session(self._target, self._task)
            self._prepared.prepare()

    def close(self) -> None:
        """Close the store, and connections that were prepared for it."""
        super().close()
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.close()

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`; a disturbance by a process that does not own the account is ignored."""
        try:
            super().write(bundle)
        except Disturbed:
            super().write(bundle)

    def _close_earlier(self) -> None:
        self._release()  # connections that were prepared are used

    @contextmanager
    def _connected(self, bundle: Bundle | None) -> Iterator[Session]:
        if self._connection is None or self._connection.gone:
            prepared, self._prepared = self._prepared, None
            fit = prepared is not None and not prepared.gone
            self._connection = prepared if fit else Session(self._target, self._task)
            self._account = None
        self._reported, self._bundle = None, bundle
        yield self._connection  # type: ignore[misc]

    def _drop(self) -> None:
        if self._connection is not None and not self._connection.gone:
            self._reported = self._connection.reported()
        super()._drop()

    def _translated(self, problem: Any) -> CausalError:
        bundle, self._bundle = self._bundle, None
        if isinstance(problem, RowsFailed):
            return self._of_rows(problem, bundle)
        if isinstance(problem, Intruded) or name_of(problem) in FENCED:
            return self._replaced()
        return translated(problem, self._target.cluster, self._reported, f"topic {self._target.topic}")

    def _of_rows(self, problem: RowsFailed, bundle: Bundle | None) -> CausalError:
        """Return the error for rows that the cluster did not accept."""
        error, message = problem.rows[0]
        if bundle is None or message.topic() != self._target.topic or name_of(error) not in _REFUSING:
            return translated(error, self._target.cluster, self._reported, f"topic {message.topic()}")
        refused = [
            (int(dict(message.headers())[POSITION]), _why(error))
            for error, message in problem.rows
            if name_of(error) in _REFUSING
        ]
        return RowRefused(*refused[0], *refused[1:])

    def _replaced(self) -> CausalError:
        """Return the error for a process that the cluster has fenced, or that found another writer."""
        try:
            with closing(Session(self._target, self._task)) as session:
                if self._owner(session) == (self._run, self._incarnation):
                    return Disturbed(f"{self._where}: another client used {session.account_topic}; retry")
                return self._not_owner(session)
        except CausalError as problem:
            return problem
        except confluent_kafka.KafkaException as problem:
            return translated(problem, self._target.cluster)

    # -- the account --------------------------------------------------------------------------------------------

    def _claimed(self, session: Session) -> Account:
        self._check_topic(session)
        self._permitted(session)
        session.begin()
        account = self._permitted(session)
        if account is None or account.run != self._run:
            account = Account(self._task, self._run, self._incarnation)
            session.append(messages_of(whole_record(account)))
        else:
            session.append(messages_of(claim_record(self._run, self._incarnation)))
        # A newer run that began meanwhile has either seen this claim or is seen here.
        account = self._permitted(session)
        if account is None or (account.run, account.incarnation) != (self._run, self._incarnation):
            raise fenced(self._task, self._incarnation)
        return account

    def _permitted(self, session: Session) -> Account | None:
        """Return the account if this process may claim it; before that, make the topic this run's own if needed."""
        runs, account = session.read()
        check_newest(self._where, self._run, runs.newest, account.run if account is not None else None)
        if runs.newest != self._run or not runs.ready:
            self._take_over(session, runs)
            runs, account = session.read()
            check_newest(self._where, self._run, runs.newest, account.run if account is not None else None)
        if account is not None and account.run == self._run and account.incarnation > self._incarnation:
            raise fenced(self._task, self._incarnation)
        return account

    def _loaded(self, session: Session) -> Account | None:
        _, account = session.read()
        mine = account is not None and (account.run, account.incarnation) == (self._run, self._incarnation)
        if mine and not session.ready:
            session.begin()
            _, account = session.read()
        return account

    def _owner(self, session: Session) -> tuple[str, int] | None:
        _, account = session.read()
        return None if account is None else (account.run, account.incarnation)

    def _check_newest(self, session: Session) -> None:
        runs, account = session.read()
        check_newest(self._where, self._run, runs.newest, account.run if account is not None else None)

    # -- bundles ------------------------------------------------------------------------------------------------

    def _advance(
        self, session: Session, account: Account, before: Before, parts: Sequence[Part], bundle: Bundle
    ) -> bool:
        out = {position for position, _ in bundle.refused}
        if self._target.upsert:
            out |= replaced(bundle, out)
        task = self._task.encode()

        def rows(produce: Callable[[bytes | None, bytes | None, list[Any]], None]) -> None:
            large: list[tuple[int, str]] = []
            position = bundle.first - 1
            for position, row in enumerate(rows_in(bundle.rows), bundle.first):
                if position in out:
                    continue
                key, value, headers = row
                try:
                    produce(value, key, [(TASK, task), (POSITION, b"%d" % position), *map(tuple, headers)])
                except confluent_kafka.KafkaException as problem:
                    if name_of(problem) not in OVERSIZED:
                        raise
                    large.append((position, _large(row)))
            invariant(position + 1 == bundle.first + bundle.count, "a bundle has as many rows as it counts", task=task)
            if large:
                raise RowRefused(*large[0], *large[1:])

        if self._target.transactions or not bundle.count:
            session.append(messages_of(step_record(account, before, parts)), rows if bundle.count else None)
        else:
            session.append(messages_of(logs_record(account, parts)))
            session.append((), rows)
            session.append(messages_of(step_record(account, before, ())))
        return True

    def _shorten(self, session: Session, account: Account, epoch: int) -> bool:
        topic, timeout_s = session.account_topic, self._target.timeout_s
        end = session.end if not self._target.transactions else offsets_of(session.reader, topic, [0], timeout_s)[0][1]
        session.append(messages_of(whole_record(account)))
        if self._target.trim:
            delete_before(session.admin, {(topic, 0): end}, timeout_s)
        return True

    # -- runs ---------------------------------------------------------------------------------------------------

    def _check_topic(self, session: Session) -> list[int]:
        return partitions_of(session.reader, self._target.topic, self._target.timeout_s)

    def _take_over(self, session: Session, runs: RunLog) -> None:
        """Make the topic this run's own: after that, no older run can write it, and its rows are dealt with."""
        target = self._target
        partitions = self._check_topic(session)
        if runs.newest != self._run and target.existing == "refuse":
            self._refuse_rows(session)
        writer = Handle(target.cluster, "producer", target.writes(session.runs_topic))
        try:
            if target.transactions:
                writer.client.init_transactions(target.timeout_s)
            now, _ = session.read()
            check_newest(self._where, self._run, now.newest)
            if now.newest == self._run and now.ready:
                return
            self._note(writer, session.runs_topic, run_message(self._run, False, {}))
            for task in self._tasks(session):
                self._seize(task)
            ends = offsets_of(session.reader, target.topic, partitions, target.timeout_s)
            begins = {partition: end for partition, (_, end) in ends.items()}
            if target.existing == "replace":
                delete_before(session.admin, {(target.topic, each): end for each, end in begins.items()}, RETURN_S)
            self._note(writer, session.runs_topic, run_message(self._run, True, begins))
        finally:
            writer.close()

    def _note(self, writer: Handle, topic: str, message: bytes) -> None:
        client, timeout_s = writer.client, self._target.timeout_s
        if self._target.transactions:
            client.begin_transaction()
        client.produce(topic, message, partition=0)
        if self._target.transactions:
            client.commit_transaction(timeout_s)
        elif client.flush(timeout_s):
            raise writer.translated(TimeoutError("a record was not acknowledged in time"), f"side topic {topic}")

    def _tasks(self, session: Session) -> list[str]:
        """Return the side topics of accounts, of any run."""
        start = f"{session.runs_topic}."
        topics = session.reader.client.list_topics(timeout=self._target.timeout_s).topics
        return sorted(topic for topic in topics if topic.startswith(start))

    def _refuse_rows(self, session: Session) -> None:
        for topic in self._tasks(session):
            with closing(Session(self._target, self._task, topic)) as other:
                _, account = other.read()
            if account is not None and account.run != self._run and account.next:
                raise foreign_rows(self._where, "KafkaSink")

    def _seize(self, topic: str) -> None:
        """Claim the account in a side topic for this run, so that no older one writes rows any more."""
        with closing(Session(self._target, self._task, topic)) as other:
            other.begin()
            _, account = other.read()
            if account is None or account.run == self._run:
                return
            check_newest(self._where, self._run, account.run)
            if account.next and self._target.existing == "refuse":
                raise foreign_rows(self._where, "KafkaSink")
            other.append(messages_of(whole_record(Account(account.task, self._run, -1))))


def replaced(bundle: Bundle, refused: Set[int]) -> set[int]:
    """Return the positions of revisions that a later one of the same bundle replaces, by the key of their messages."""
    last: dict[bytes | None, int] = {}
    earlier = set()
    for position, (key, _, _) in enumerate(rows_in(bundle.rows), bundle.first):
        if position not in refused:
            if key in last:
                earlier.add(last[key])
            last[key] = position
    return earlier


_REFUSING = (*OVERSIZED, "INVALID_RECORD")


def _why(error: Any) -> str:
    remedy = "raise max.message.bytes of the topic" if name_of(error) in OVERSIZED else "correct the row"
    return f"{' '.join(str(error.str()).split())}; {remedy}"


def _large(row: Row) -> str:
    key, value, _ = row
    return (
        f"a message of {len(key or b'') + len(value or b''):,} bytes is larger than message.max.bytes; raise it in "
        "options, and max.message.bytes of the topic"
    )


def newest_run(target: Target) -> str | None:
    """Return the newest run that has begun to write the topic, or None.

    Raises:
        confluent_kafka.KafkaException: the cluster is unavailable.
    """
    topic = runs_topic(target.topic)
    reader = Handle(target.cluster, "consumer", target.reads())
    try:
        if not all(are_there(reader, [topic], target.timeout_s)):
            return None
        runs = RunLog(f"{target.cluster.place}: topic {topic}")
        read_to_end(reader, {topic: runs.take}, target.timeout_s)
        return runs.newest or None
    finally:
        reader.close()
