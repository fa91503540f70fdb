"""The store of a task's requests: it holds the determinants of what the task asks, before it is asked (D4, D8).

The outside world acts on a request as soon as it arrives, so a request is an effect like a row: it may leave only when
what it depends on is held by a process or store that survives the task and all its neighbours.  The store is one
journal per task in the job's directory.  A bundle is one appended record; there are no rows to keep, their keys are
only compared.
"""

from __future__ import annotations

from pathlib import Path

from causal.errors import CausalError, CorruptData, invariant
from causal.ports import Bundle, StoreState, WithdrawPoint
from causal.records.values import decode, encode, encode_loosely
from operators.sinks.contract.account import Account, fenced
from operators.sinks.contract.account_bytes import packed, unpacked
from operators.sinks.contract.bundle_codec import bundle_fields, bundle_of
from operators.sinks.files.locked_journal import LockedJournal
from operators.sinks.storage.lock import outside

DIRECTORY = "requests"
"""The directory of the journals, in that of the job."""
BUSY_MS = 2000


class RequestStore:
    """The requests of one task; a `causal.ports.WithdrawingStore`.  One thread at a time.

    Args:
        directory: of the journals of all tasks; its parent is there.
        sync: whether a bundle is on the disk before its requests leave.
    """

    def __init__(self, task: str, directory: Path, sync: bool) -> None:
        self._task = task
        self._directory = directory
        path = directory / f"{task.replace('/', '-')}.journal"
        self._journal = LockedJournal(task, path, directory / f".{path.stem}.lock", path, self._forget)
        self._journal.sync = sync
        self._run = ""
        self._incarnation = -1
        self._account: Account | None = None

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `causal.ports.SinkStore.open`; a journal of another run is replaced, as its job's state was."""
        invariant(task == self._task, "a store is opened by the task it was made for", made_for=self._task, task=task)
        self.close()
        self._run, self._incarnation = run, incarnation
        try:
            with outside(self._directory):
                self._directory.mkdir(exist_ok=True)
            with self._journal.locked(BUSY_MS):
                account = self._load() if self._journal.is_there else None
                if account is None or account.run != run:
                    account = Account(self._task, run, incarnation)
                if account.incarnation > incarnation:
                    raise fenced(self._task, incarnation)
                account.incarnation = incarnation
                self._renew(account)
                self._account = account
                return account.store_state()
        except BaseException:
            self.close()
            raise

    def last_bundle(self) -> StoreState:
        """See `causal.ports.SinkStore.last_bundle`."""
        with self._journal.locked(BUSY_MS):
            self._forget()
            return self._current().store_state()

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`."""
        invariant(bundle.incarnation == self._incarnation, "a bundle is its writer's own", task=self._task)
        with self._journal.locked(BUSY_MS):
            account = self._current()
            if self._journal.is_due():
                self._renew(account)
            if account.take(bundle) is not None:
                self._journal.append(encode_loosely(bundle_fields(bundle)))

    def truncate(self, epoch: int) -> None:
        """See `causal.ports.SinkStore.truncate`; the journal is rewritten, so it does not grow without bound."""
        if self._account is not None and epoch <= self._account.kept_from:
            return
        with self._journal.locked(BUSY_MS):
            account = self._current()
            if account.truncate(epoch):
                self._renew(account)

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        """See `causal.ports.WithdrawingStore.withdraw`: what was asked behind the mark may be asked otherwise."""
        with self._journal.locked(BUSY_MS):
            account = self._current()
            account.withdraw(mark)
            self._renew(account)
            return account.store_state()

    def close(self) -> None:
        """Release the files; what was written stays."""
        self._forget()
        self._journal.close()

    def _forget(self) -> None:
        self._account = None

    def _current(self) -> Account:
        """The account, if no younger process has put its journal in the place of this one."""
        ours = self._journal.is_ours(self._incarnation)
        if self._account is None or not ours:
            account = self._load()
            if (account.run, account.incarnation) != (self._run, self._incarnation):
                raise fenced(self._task, self._incarnation)
            self._account = account
        return self._account

    def _load(self) -> Account:
        """Read the journal and cut off its torn tail."""
        place = self._journal.path
        records = self._journal.read()
        try:
            account = unpacked(self._task, decode(records[0]))
            for body in records[1:]:
                bundle = bundle_of(decode(body))
                invariant(account.take(bundle) is not None, "bundles of a journal differ", journal=place)
        except (CausalError, IndexError, TypeError, ValueError) as problem:
            raise CorruptData(f"{place} holds a record that is none ({problem}); restore the file") from problem
        self._journal.cut()
        return account

    def _renew(self, account: Account) -> None:
        """Put a journal with nothing but the state in the place of the one that is there."""
        self._journal.renew(encode(packed(account)))
