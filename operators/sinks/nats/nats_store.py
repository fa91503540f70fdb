"""The store of one sink task, in a stream of NATS JetStream; see `nats_sink` for its promises.

Each change of the account names the last message of its subject that this process has seen, and the server compares it
in the step that writes. Whatever a replaced process or an older run sends later is refused, rows included, and an
attempt whose answer was lost takes effect once.

A new run first makes the output its own: it notes that it has begun, then claims the account of every other task, and
notes from which sequence on its rows are. An older run that claims an account meanwhile sees the note after its claim,
or its claim is seen here. Every note names the one before it, so that two processes of a run cannot mix their steps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from causal.errors import CausalError, RowRefused, Unavailable, fenced, invariant
from causal.ports import Bundle
from operators.nats.nats_errors import Declined, translated
from operators.nats.nats_subjects import overlaps
from operators.sinks.contract.account import Account, Part, check_newest, foreign_rows
from operators.sinks.contract.account_store import Before, ConnectedStore
from operators.sinks.messages.account_log import (
    AccountLog,
    claim_record,
    logs_record,
    messages_of,
    rows_record,
    step_record,
    whole_record,
)
from operators.sinks.messages.message_rows import POSITION, TASK, rows_in
from operators.sinks.nats.nats_session import Message, Runs, Session, Target, batches

TRIES_MAX, TURN_S, OTHERS_S = 100, 0.02, 0.5
"""The attempts at a step that others also make, and the wait in between; how long a run's other task may prepare."""
HEADER_BYTES = 200
"""A bound on what a batch adds to a row's headers."""


class NatsStore(ConnectedStore[Session]):
    """The rows and the account of one sink task. Only one thread may use the store at a time."""

    _errors = Declined
    _losses = "the stream was deleted, or the server lost its last messages"

    def __init__(self, target: Target, task: str) -> None:
        super().__init__(task, target.servers.place)
        self._target = target
        self._written = 0

    @contextmanager
    def _connected(self, bundle: Bundle | None) -> Iterator[Session]:
        if self._connection is None or self._connection.gone:
            self._drop()
            self._connection = Session(self._target, self._task)
        self._connection.prepare_stream()
        yield self._connection

    def _translated(self, problem: Any) -> CausalError:
        return translated(problem, self._target.servers, f"stream {self._target.stream}")

    # -- the account --------------------------------------------------------------------------------------------

    def _claimed(self, session: Session) -> Account:
        for _ in range(TRIES_MAX):
            log = self._permitted(session)
            account, record = log.account, claim_record(self._run, self._incarnation)
            if account is None or account.run != self._run:
                account = Account(self._task, self._run, self._incarnation)
                record = whole_record(account)
            if session.append(messages_of(record, session.part_bytes)):
                self._check_newest(session)
                account.incarnation = self._incarnation
                self._written = max(log.written, account.next) if account is log.account else 0
                return account
        raise Unavailable(f"{self._target.where}: others write to {session.account_subject}; retry")

    def _permitted(self, session: Session) -> AccountLog:
        """Return the account if this process may claim it; before that, make the stream this run's own if needed."""
        self._own(session)
        log = session.account()
        account = log.account
        if account is not None:
            check_newest(self._target.where, self._run, account.run)
            if account.run == self._run and account.incarnation > self._incarnation:
                raise fenced(self._task, self._incarnation)
        return log

    def _loaded(self, session: Session) -> Account | None:
        log = session.account()
        self._written = log.written
        return log.account

    def _owner(self, session: Session) -> tuple[str, int] | None:
        account = session.account().account
        return None if account is None else (account.run, account.incarnation)

    def _check_newest(self, session: Session) -> None:
        check_newest(self._target.where, self._run, session.runs().newest)

    # -- bundles ------------------------------------------------------------------------------------------------

    def _advance(
        self, session: Session, account: Account, before: Before, parts: Sequence[Part], bundle: Bundle
    ) -> bool:
        rows = self._rows(session, bundle)
        step = messages_of(step_record(account, before, parts), session.part_bytes)
        *first, last = batches(rows, len(step) + 2)
        if first:
            if not self._written_ahead(session, account, parts, first):
                return False
            step = messages_of(step_record(account, before, ()), session.part_bytes)
        done = session.append(step, last)
        self._written = max(self._written, account.next)
        return done

    def _written_ahead(
        self, session: Session, account: Account, parts: Sequence[Part], first: Sequence[list[Message]]
    ) -> bool:
        """Write the determinants of a bundle, and with them rows for which one batch is too small.

        The account notes with each batch how far the rows are, so that the next process leaves those rows out. With
        the determinants there, a replay gives the same rows.
        """
        records = [logs_record(account, parts)]
        for rows in first:
            records.append(rows_record(account, int(rows[-1][1][POSITION]) + 1))
            messages = [message for record in records for message in messages_of(record, session.part_bytes)]
            if not session.append(messages, rows):
                return False
            records = []
        return True

    def _rows(self, session: Session, bundle: Bundle) -> list[Message]:
        """Return the messages of the rows that are not there yet.

        Raises:
            RowRefused: no subject of the stream takes a row, or it is too large.
        """
        out = {position for position, _ in bundle.refused}
        subjects, bytes_max = session.config["subjects"], session.bytes_max
        taken: dict[str, bool] = {}
        messages: list[Message] = []
        refused: list[tuple[int, str]] = []
        position = bundle.first - 1
        for position, (subject_bytes, value, named) in enumerate(rows_in(bundle.rows), bundle.first):
            if position in out or position < self._written:
                continue
            subject, body = (subject_bytes or b"").decode(), value or b""
            headers = {TASK: self._task, POSITION: str(position), **{name: each.decode() for name, each in named}}
            size = len(body) + sum(len(name) + len(each.encode()) + 4 for name, each in headers.items()) + HEADER_BYTES
            if subject not in taken:
                taken[subject] = overlaps(subject, subjects) and not overlaps(subject, self._reserved)
            if not taken[subject]:
                refused.append((position, f"the stream has no subject {subject}; add it (nats stream edit --subjects)"))
            elif size > bytes_max:
                refused.append((position, f"a message of {size:,} bytes; raise max_payload or max_msg_size"))
            messages.append((subject, headers, body))
        invariant(
            position + 1 == bundle.first + bundle.count, "a bundle has as many rows as it counts", task=self._task
        )
        if refused:
            raise RowRefused(*refused[0], *refused[1:])
        return messages

    @property
    def _reserved(self) -> tuple[str, str]:
        return self._target.runs_subject, f"{self._target.runs_subject}.>"

    def _shorten(self, session: Session, account: Account, epoch: int) -> bool:
        records = [whole_record(account)]
        if self._written > account.next:
            records.append(rows_record(account, self._written))
        messages = [message for record in records for message in messages_of(record, session.part_bytes)]
        if not session.append(messages):
            return False
        session.purge(session.end - len(messages) + 1, session.account_subject)
        return True

    # -- runs ---------------------------------------------------------------------------------------------------

    def _own(self, session: Session) -> None:
        """Make the stream this run's own: after that, no older run can write it, and its rows are dealt with."""
        due_s = time.monotonic() + OTHERS_S
        for _ in range(TRIES_MAX):
            runs = session.runs()
            check_newest(self._target.where, self._run, runs.newest)
            if runs.newest == self._run and runs.ready:
                return
            if runs.newest == self._run and time.monotonic() < due_s:
                time.sleep(TURN_S)  # another task of this run is about to finish
            elif self._taken_over(session, runs):
                return
        raise Unavailable(f"{self._target.where}: another task prepares it; retry")

    def _taken_over(self, session: Session, runs: Runs) -> bool:
        """Write that this run begins, end the accounts of others, and write where its rows begin.

        Return False if another process has made a note in between.
        """
        subjects = session.account_subjects()
        if runs.newest != self._run and self._target.existing == "refuse":
            for subject in subjects:
                self._check_foreign(session.account(subject).account)
        note = session.note(runs.sequence, self._run, False, 0)
        if not note:
            return False
        for subject in session.account_subjects():
            self._seize(session, subject)
        begin = session.note(note, self._run, False, 0)
        if not begin:
            return False
        if self._target.existing == "replace":
            session.purge(begin)  # a process that is late with this deletes nothing that a later note precedes
        return bool(session.note(begin, self._run, True, begin))

    def _seize(self, session: Session, subject: str) -> None:
        """Claim the account in a subject for this run, so that no older one writes rows any more."""
        for _ in range(TRIES_MAX):
            account = session.account(subject).account
            if account is None or account.run == self._run:
                return
            check_newest(self._target.where, self._run, account.run)
            self._check_foreign(account)
            ended = whole_record(Account(account.task, self._run, -1))
            if session.seize(subject, messages_of(ended, session.part_bytes)):
                return
        raise Unavailable(f"{self._target.where}: an older run still writes to {subject}; end it, or retry")

    def _check_foreign(self, account: Account | None) -> None:
        if account is not None and account.run != self._run and account.next and self._target.existing == "refuse":
            raise foreign_rows(self._target.where, "NatsSink")
