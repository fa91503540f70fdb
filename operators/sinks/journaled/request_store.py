"""The store of a task's requests, which keeps a request's determinants before the request is sent (D4, D8).

The outside world acts on a request as soon as it arrives, so a request is an effect, like a row. It may be sent only
when everything on which it depends is held by a process or store that survives the task and all its neighbours. The
store is one journal per task, in the job directory or in the storage that the job's hosts share. A bundle is one
appended record; there are no rows to keep, and the keys of requests are only compared.
"""

from __future__ import annotations

from pathlib import Path

from causal.storage.file_journal import FileJournal
from causal.storage.object_journal import ObjectJournal
from causal.storage.shared import Depot
from operators.sinks.journaled.journaled_store import WithdrawingJournaledStore
from operators.sinks.journaled.ledger import Ledger, ledger_in

DIRECTORY = "requests"
"""The directory of the journals, in that of the job, or in the place of the run."""
BUSY_MS = 2000


class RequestStore(WithdrawingJournaledStore):
    """The requests of one task, as a `causal.ports.WithdrawingStore`. Only one thread may use it at a time.

    Args:
        directory: the directory of all tasks' journals; its parent must exist.
        sync: whether a bundle must be on disk before its requests are sent.
    """

    _journal: FileJournal

    def __init__(self, task: str, directory: Path, sync: bool) -> None:
        path = directory / f"{task.replace('/', '-')}.journal"
        super().__init__(task, FileJournal(task, path, directory / f".{path.stem}.lock", path, BUSY_MS, sync), path)

    def _claim(self) -> Ledger:
        path = self._journal.path
        if self._journal.is_there and ledger_in(path).account.run != self._run:
            path.unlink()  # the journal belongs to a run whose state was replaced
        return super()._claim()


class SharedRequestStore(WithdrawingJournaledStore):
    """The requests of one task in a multi-host job, as a `causal.ports.WithdrawingStore`.

    Only one thread may use it at a time.

    Args:
        url: the URL of the storage that the hosts share.
        place: the run's place in that storage.
    """

    def __init__(self, task: str, url: str, place: str) -> None:
        folder = f"{DIRECTORY}/{task.replace('/', '-')}"
        shown = f"{url}/{place}"
        super().__init__(task, ObjectJournal(task, folder, shown, lambda: Depot(url, place, proof="")), shown)
