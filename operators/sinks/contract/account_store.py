"""The store of one sink task: an account and rows, which change together in one step.

`AccountStore` contains the logic that all stores share: opening, writing, truncating, withdrawing and reading the last
bundle. There are two kinds of stores. A journaled store (`operators.sinks.journaled`) appends each step to a journal. A
`ConnectedStore` sends each step to a server or a database. A statement or script may still be executed after its answer
was lost. Each one therefore names the account that it follows, so that it takes effect at most once, and the store
reads the account again after any error. A subclass of `ConnectedStore` adds its connection, and functions that read the
account and change it in one step: a script on a server, or a database transaction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic, Protocol, TypeVar

from causal.errors import CausalError, DeterminantsLost, Fenced, Unavailable, fenced, invariant
from causal.ports import Bundle, StoreState, WithdrawPoint
from operators.sinks.contract.account import Account, Part, log_parts, mark_parts

S = TypeVar("S")


class AccountStore(ABC, Generic[S]):
    """The logic that all stores share. Only one thread may use a store at a time.

    State: `_account` is None if nothing in memory can be trusted; the next step then reads the account again.
    """

    def __init__(self, task: str, place: object) -> None:
        self._task = task
        self._place = place
        self._run = ""
        self._incarnation = -1
        self._account: Account | None = None

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `causal.ports.SinkStore.open`; also raises `PipelineError` if the store's place is unsuitable."""
        invariant(
            task == self._task, "a store is opened by the task for which it was created", made_for=self._task, task=task
        )
        self._close_earlier()
        self._run, self._incarnation = run, incarnation
        try:
            with self._opening() as session:
                account = self._account = self._claimed(session)
            return account.store_state()
        except BaseException:
            self._release()
            raise

    def last_bundle(self) -> StoreState:
        """See `causal.ports.SinkStore.last_bundle`."""
        with self._asking() as session:
            self._forget()
            return self._owned(session).store_state()

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`."""
        invariant(bundle.incarnation == self._incarnation, "a bundle is its writer's own", task=self._task)
        with self._asking(bundle) as session:
            if not self._taken(session, self._owned(session), bundle):
                self._check_owner(session)

    def truncate(self, epoch: int) -> None:
        """See `causal.ports.SinkStore.truncate`."""
        if self._account is not None and epoch <= self._account.kept_from:
            return
        with self._asking() as session:
            account = self._owned(session)
            if account.truncate(epoch):
                self._truncated(session, account, epoch)
            else:
                self._check_owner(session)

    def close(self) -> None:
        """Close the store until it is opened again; written data is kept."""
        self._release()

    def _close_earlier(self) -> None:
        """Close what an earlier `open` of this object has left open; by default, everything."""
        self.close()

    def _forget(self) -> None:
        """Discard the account in memory, so that the next step reads it again."""
        self._account = None

    # -- what a subclass provides ----------------------------------------------------------------------------

    @abstractmethod
    def _opening(self) -> AbstractContextManager[S]:
        """Return the context in which `open` runs; it claims the place for this run before the account is claimed."""

    @abstractmethod
    def _asking(self, bundle: Bundle | None = None) -> AbstractContextManager[S]:
        """Return the context in which any other call runs; after an error inside, the account is read again.

        Args:
            bundle: the bundle to write; None if the call does not write one.
        """

    @abstractmethod
    def _release(self) -> None:
        """Release the open resources."""

    @abstractmethod
    def _claimed(self, session: S) -> Account:
        """Fence all lower incarnations of this task, and read the stored state in the same step."""

    @abstractmethod
    def _owned(self, session: S) -> Account:
        """Return the account from memory, or read it again after a failure; never that of a newer incarnation."""

    @abstractmethod
    def _taken(self, session: S, account: Account, bundle: Bundle) -> bool:
        """Store a bundle and the resulting account in one step; return False if it is the last bundle again."""

    @abstractmethod
    def _truncated(self, session: S, account: Account, epoch: int) -> None:
        """Store the account, which has just discarded the determinants of epochs below `epoch`."""

    def _check_owner(self, session: S) -> None:
        """Raise `Fenced` if another process owns the account, unless `_owned` has already checked the owner."""


class WithdrawingAccountStore(AccountStore[S]):
    """A store whose rows are identified by task and position, so that they can be withdrawn."""

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        """See `causal.ports.WithdrawingStore.withdraw`."""
        with self._asking() as session:
            self._taken_back(session, self._owned(session), mark)
            return self._owned(session).store_state()

    def limit(self, rows: int) -> str:
        """See `causal.ports.ReturningStore.limit`; by default, all rows can be withdrawn."""
        return ""

    def obstacle(self, next_: int) -> str:
        """See `causal.ports.ReturningStore.obstacle`."""
        with self._asking() as session:
            return self._obstacle(session, self._owned(session), next_)

    def return_to(self, next_: int, digest: int) -> StoreState:
        """See `causal.ports.ReturningStore.return_to`."""
        with self._asking() as session:
            account = self._owned(session)
            account.check_return(next_, digest)
            self._returned(session, account, next_, digest)
            return self._owned(session).store_state()

    @abstractmethod
    def _taken_back(self, session: S, account: Account, mark: WithdrawPoint) -> None:
        """Withdraw the rows after the mark and store the account without them, in a single step."""

    def _obstacle(self, session: S, account: Account, next_: int) -> str:
        """Return why the rows from `next_` on cannot be withdrawn; by default, they can."""
        return ""

    @abstractmethod
    def _returned(self, session: S, account: Account, next_: int, digest: int) -> None:
        """Withdraw the rows from `next_` on and store the account without them, in a single step."""


# -- stores over a connection -----------------------------------------------------------------------------------


class Connection(Protocol):
    """A client connected to a server or a file."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Connection)
Before = tuple[int, bytes]
"""The position and last bundle of the account that a change follows."""


class ConnectedStore(AccountStore[C]):
    """A store that accesses its account and rows over a connection. Only one thread may use it at a time."""

    _errors: type[Exception]
    """The exceptions of the driver."""
    _place: str
    _losses: str
    """The ways in which the store may have lost data that it acknowledged."""

    def __init__(self, task: str, place: str) -> None:
        super().__init__(task, place)
        self._connection: C | None = None
        self._acknowledged = 0

    @contextmanager
    def _opening(self) -> Iterator[C]:
        self._acknowledged = 0
        with self._asking() as connection:
            yield connection

    def _release(self) -> None:
        self._drop()
        self._run = ""

    def _drop(self) -> None:
        """Close the connection. The outcome of pending requests is unknown, so the account is read again."""
        connection, self._connection, self._account = self._connection, None, None
        if connection is not None:
            connection.close()

    # -- what a subclass provides ---------------------------------------------------------------------------------

    @abstractmethod
    def _connected(self, bundle: Bundle | None) -> AbstractContextManager[C]:
        """Return a connection for one call, opening a new one if necessary; `bundle` is the bundle to write, if any."""

    @abstractmethod
    def _translated(self, problem: Any) -> CausalError:
        """Return the project's error that corresponds to an exception of the driver."""

    @abstractmethod
    def _loaded(self, connection: C) -> Account | None:
        """Return the stored account once all pending work is done, or None if there is no account."""

    @abstractmethod
    def _owner(self, connection: C) -> tuple[str, int] | None:
        """Return the run and incarnation that own the stored account, or None if there is no account."""

    @abstractmethod
    def _check_newest(self, connection: C) -> None:
        """Raise `Superseded` if a newer run has opened this sink's output."""

    @abstractmethod
    def _advance(self, connection: C, account: Account, before: Before, parts: Sequence[Part], bundle: Bundle) -> bool:
        """Store a bundle with its account and parts; return False if the stored account is not `before`."""

    @abstractmethod
    def _shorten(self, connection: C, account: Account, epoch: int) -> bool:
        """Store the account without the determinants of epochs below `epoch`.

        Return False if the stored account is not the one that this process last read or wrote.
        """

    # -- the account ---------------------------------------------------------------------------------------

    @contextmanager
    def _asking(self, bundle: Bundle | None = None) -> Iterator[C]:
        """Yield a connection for one call.

        After any error, the account is read again, over a new connection if necessary.
        """
        if self._run == "":
            raise Unavailable(f"the store of sink task {self._task} is not open; open it first")
        try:
            with self._connected(bundle) as connection:
                yield connection
        except self._errors as problem:
            self._drop()
            raise self._translated(problem) from problem
        except CausalError:
            self._account = None
            raise
        except BaseException:
            self._drop()
            raise
        # Do this only here, because a transaction ends together with the context of its connection.
        if self._account is not None:
            self._acknowledged = self._account.next

    def _owned(self, connection: C) -> Account:
        if self._account is None:
            account = self._loaded(connection)
            if account is None:
                replaced = self._not_owner(connection)
                raise self._lost(0) if self._acknowledged else replaced
            if account.run != self._run:
                raise self._not_owner(connection)
            account.fence(self._run, self._incarnation)
            if account.next < self._acknowledged:
                raise self._lost(account.next)
            self._account = account
        return self._account

    def _taken(self, connection: C, account: Account, bundle: Bundle) -> bool:
        before, marks = (account.next, account.last), len(account.marks)
        fresh = account.take(bundle)
        if fresh is None:
            return False
        parts = [*log_parts(fresh), *mark_parts(account, marks)]
        self._changed(connection, self._advance(connection, account, before, parts, bundle))
        return True

    def _truncated(self, connection: C, account: Account, epoch: int) -> None:
        self._changed(connection, self._shorten(connection, account, epoch))

    def _lost(self, next_: int) -> DeterminantsLost:
        return DeterminantsLost(
            f"{self._place}: rows of {self._task} up to {self._acknowledged} were acknowledged, but it has rows "
            f"only up to {next_}: {self._losses}; restore them, or resume with --resume, which writes them "
            "again, possibly in a different order"
        )

    def _changed(self, connection: C, done: bool) -> None:
        """Unless `done` is true, raise the error that explains why the account was not stored."""
        if done:
            return
        self._account = None
        self._owned(connection)
        raise Unavailable(f"{self._place}: an earlier attempt was still in progress; retry")

    def _check_owner(self, connection: C) -> None:
        if self._owner(connection) != (self._run, self._incarnation):
            raise self._not_owner(connection)

    def _not_owner(self, connection: C) -> Fenced:
        """Return the error for a process that another has replaced.

        Raises:
            Superseded: the other process belongs to a newer run.
        """
        self._check_newest(connection)
        return fenced(self._task, self._incarnation)


class WithdrawingConnectedStore(WithdrawingAccountStore[C], ConnectedStore[C]):
    """A store over a connection whose rows can be withdrawn."""

    def _taken_back(self, connection: C, account: Account, mark: WithdrawPoint) -> None:
        before = (account.next, account.last)
        account.withdraw(mark)
        parts = [*log_parts(account.store_state().logs), *mark_parts(account, 0)]
        self._changed(connection, self._take_back(connection, account, before, parts))

    def _returned(self, connection: C, account: Account, next_: int, digest: int) -> None:
        before = (account.next, account.last)
        refused = self._refused_below(connection, next_) if account.refused else 0
        account.return_to(next_, digest, refused, 0)
        self._changed(connection, self._take_back(connection, account, before, []))

    @abstractmethod
    def _refused_below(self, connection: C, next_: int) -> int:
        """Return how many rows below position `next_` were left out."""

    @abstractmethod
    def _take_back(self, connection: C, account: Account, before: Before, parts: Sequence[Part]) -> bool:
        """Delete the rows from `account.next` on, and store the account with only these parts.

        Return False if the stored account is not `before`.
        """


def check_lines(bundle: Bundle, task: str) -> None:
    """Check that a bundle has one line per row, because a server will count the lines."""
    lines = bundle.rows.count(b"\n")
    invariant(lines == bundle.count, "one line per row", task=task, first=bundle.first, lines=lines)
