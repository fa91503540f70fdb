"""A database with the rows and the account of one sink task: the part of a sink that each kind of database has.

Connection, statements, types, quoting and errors are its matter; who may write, and what, `DatabaseStore` decides.
A dialect of SQL is a subclass of `SqlDatabase`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from causal.errors import CausalError, CorruptData, InvariantViolation, invariant
from causal.logs.log import LogDelta
from causal.ports import Bundle
from operators.sinks.contract.account import Account, check_newest, fenced, foreign_rows
from operators.sinks.contract.sink import Sink


class Before(NamedTuple):
    """The account that a change follows: the change is made only where the stored one is still this."""

    next: int
    last: bytes
    marks: int
    """The number of its marks: the ones behind them are new."""


class Closable(Protocol):
    """A client's connection."""

    def close(self) -> None:
        """Close it."""


Client = TypeVar("Client", bound=Closable)


class Database(ABC, Generic[Client]):
    """The rows and the account of one sink task, over one connection.  One thread at a time.

    Every method but `step` and `close` is called inside a `step`, and may raise a `failure`.  Methods that change
    something do so in one atomic step, and return false, having changed nothing, where the stored account is no longer
    the one they follow.
    """

    failure: ClassVar[type[Exception]]
    """The base of the client's errors."""
    lost: ClassVar[str]
    """The possible reasons why rows that were acknowledged are gone."""
    withdraws = True
    """Whether rows can be withdrawn."""

    def __init__(self, sink: Sink, task: str, place: str) -> None:
        self.task = task
        self.place = place
        """The name of the database in messages, without a password."""
        self.sink_name = type(sink).__name__
        self.existing = sink.existing or "refuse"
        self.durability = sink.durability or "process"
        self.connection: Client | None = None

    @property
    def db(self) -> Client:
        """The connection of the step under way."""
        if self.connection is None:
            raise InvariantViolation(f"the database of {self.task} is asked outside a step")
        return self.connection

    @property
    @abstractmethod
    def output(self) -> str:
        """The name of what users read, in messages."""

    @abstractmethod
    def connect(self) -> None:
        """Make the connection ready for one step: a new one, where there is none that works."""

    def close(self) -> None:
        """Close the connection, if there is one; the next step has a new one."""
        db, self.connection = self.connection, None
        if db is not None:
            db.close()

    @abstractmethod
    def translated(self, problem: Exception) -> CausalError:
        """The error of ours that says what to do about a `failure`."""

    @contextmanager
    def step(self) -> Iterator[None]:
        """Surround one call of the store; what a connection has under way when it fails is unknown, so it is closed.

        Raises:
            CausalError: the translation of a `failure`.
        """
        try:
            self.connect()
            yield
        except CausalError:
            raise
        except BaseException as problem:
            self.close()
            if isinstance(problem, self.failure):
                raise self.translated(problem) from problem
            raise

    @abstractmethod
    def check(self) -> None:
        """Raise `PipelineError` for what can be known to be wrong before the job starts."""

    @abstractmethod
    def newest_run(self) -> str | None:
        """The newest of the runs that have an account here; None if there is none."""

    @abstractmethod
    def claim(self, run: str, incarnation: int) -> Account:
        """Fence every lower incarnation, and return what is stored, or a new account, in one atomic step.

        Raises:
            Fenced: a higher incarnation, or a newer run, was here.
            PipelineError: the tables are not fit, or hold rows of another run.
        """

    @abstractmethod
    def load(self) -> Account | None:
        """The stored account, behind a change that is under way; raises `CorruptData` if it cannot be read."""

    @abstractmethod
    def append(self, before: Before, account: Account, fresh: Sequence[LogDelta], bundle: Bundle) -> bool:
        """Store the rows of a bundle, the account that has taken it, and determinants that are not stored yet.

        Raises:
            RowRefused: the database will never take some of the rows; nothing was changed.
        """

    @abstractmethod
    def truncate(self, account: Account) -> bool:
        """Remove what the account has forgotten."""

    @abstractmethod
    def withdraw(self, before: Before, account: Account) -> bool:
        """Remove the rows from the account's end on, and store it instead."""

    @contextmanager
    def decoding(self, where: str) -> Iterator[None]:
        """Raise `CorruptData` for bytes at that place that cannot be decoded."""
        try:
            yield
        except (CausalError, TypeError, ValueError) as problem:
            raise CorruptData(f"{self.place}: {where}: {problem}") from None


class SqlDatabase(Database[Client]):
    """A database that speaks SQL: what is the same in every dialect, with `causal_task` holding a row per account.

    A subclass surrounds `claim` and `load` with a transaction.
    """

    parameter: ClassVar[str]
    """The form of a parameter in a statement, around its name."""
    tasks = "causal_task"
    """The table of accounts, and the conditions for those of this sink and for this task's, the parameter `task`."""
    of_sink = "0 = 0"
    of_task: ClassVar[str]
    beside: Sequence[str]
    """The tables with more about tasks."""
    locking = ""
    """The end of a query whose rows are not to change until the transaction ends."""
    sequence = 0
    """The next free number of what is stored beside the account."""

    @abstractmethod
    def execute(self, statement: str, parameters: Mapping[str, Any]) -> Any:
        """Perform a statement; returns a cursor."""

    @abstractmethod
    def make_tables(self) -> None:
        """Make the tables that are not there; raises `PipelineError` for those that are not fit."""

    @abstractmethod
    def remove_rows(self, task: str, first: int) -> None:
        """Remove the rows of a task from that position on."""

    @abstractmethod
    def load_rest(self, account: Account) -> None:
        """Read what lies beside the row of the account, and set `sequence`; errors of decoding are for `decoding`."""

    def key(self, task: str = "") -> dict[str, Any]:
        """The parameters that identify the account of this task, or of another one."""
        return {"task": task or self.task}

    def numbers(self, account: Account) -> dict[str, Any]:
        """The columns of the account's row."""
        return self.key() | {
            "run": account.run,
            "incarnation": account.incarnation,
            "next": account.next,
            "digest": account.digest.to_bytes(8, "big"),
            "last": account.last,
            "kept_from": account.kept_from,
            "ended": account.ended,
        }

    def accounts(self) -> list[tuple[str, str, int]]:
        """Task, run and number of rows of every account of this sink."""
        rows: list[tuple[str, str, int]] = self.execute(
            f"SELECT task, run, next FROM {self.tasks} WHERE {self.of_sink}", self.key()
        ).fetchall()
        return rows

    def newest_run(self) -> str | None:
        return max((run for _, run, _ in self.accounts()), default=None)

    def claim(self, run: str, incarnation: int) -> Account:
        self.make_tables()
        others = [each for each in self.accounts() if each[1] != run]
        check_newest(self.output, run, *(other for _, other, _ in others))
        if self.existing == "refuse" and any(rows for _, _, rows in others):
            raise foreign_rows(self.output, self.sink_name)
        for task, _, _ in others:
            self._remove(task)
        account = self.load()
        if account is None:
            account = Account(self.task, run, incarnation)
            numbers = self.numbers(account)
            values = ", ".join(self.parameter.format(name) for name in numbers)
            self.execute(f"INSERT INTO {self.tasks}({', '.join(numbers)}) VALUES({values})", numbers)
        elif account.incarnation > incarnation:
            raise fenced(self.task, incarnation)
        else:
            account.incarnation = incarnation
            fence = f"incarnation = {self.parameter.format('incarnation')}"
            self.execute(f"UPDATE {self.tasks} SET {fence} WHERE {self.of_task}", self.numbers(account))
        return account

    def _remove(self, task: str) -> None:
        """Remove a task of another run.

        Its account goes first: that waits for a bundle which the server is still writing, so the statements behind it,
        each of which sees what is committed when it begins, remove all that there will ever be.
        """
        for table in (self.tasks, *self.beside):
            self.execute(f"DELETE FROM {table} WHERE {self.of_task}", self.key(task))
        if self.existing == "replace":
            self.remove_rows(task, 0)

    def load(self) -> Account | None:
        self.sequence = 0
        columns = "run, incarnation, next, digest, last, kept_from, ended"
        query = f"SELECT {columns} FROM {self.tasks} WHERE {self.of_task}{self.locking}"
        row = self.execute(query, self.key()).fetchone()
        if row is None:
            return None
        run, incarnation, next_, digest, last, kept_from, ended = row
        at = int.from_bytes(digest, "big")
        account = Account(self.task, run, incarnation, next_, at, last, kept_from, bool(ended))
        self.load_rest(account)
        return account


def check_lines(bundle: Bundle, task: str) -> None:
    """Raise `InvariantViolation` unless each row of the bundle is a line."""
    lines = bundle.rows.count(b"\n")
    invariant(lines == bundle.count, "one line per row", task=task, first=bundle.first, lines=lines)
