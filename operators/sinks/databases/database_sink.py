"""The sink that writes to a database: what it is asked before its stores are opened."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from causal.errors import PipelineError, Unavailable
from causal.ports import SinkStore
from operators.sinks.contract.sink import Sink
from operators.sinks.databases.database import Database
from operators.sinks.databases.database_store import DatabaseStore, WithdrawingDatabaseStore


class DatabaseSink(Sink):
    """A sink whose stores are in a `Database`."""

    @abstractmethod
    def database(self, task: str) -> Database[Any]:
        """The rows and the account of that task, with its client imported and nothing connected."""

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """The store of one sink task; nothing is connected before its `open`."""
        database = self.database(task)
        return (WithdrawingDatabaseStore if database.withdraws else DatabaseStore)(database)

    def check(self) -> None:
        """Raise `PipelineError` for what is wrong with arguments, server or table; one that is down is waited for."""
        with closing(self.database("")) as database, suppress(Unavailable), database.step():
            database.check()

    def newest_run(self) -> str | None:
        """The newest run that has opened a store of this sink."""
        with closing(self.database("")) as database, database.step():
            return database.newest_run()


def require_client(sink: str, module: str, package: str, extra: str) -> None:
    """Import a client; raises `PipelineError` where it is not installed.

    Args:
        extra: the extra of this package that brings it.
    """
    try:
        import_module(module)
    except ImportError as problem:
        raise PipelineError(
            f"{sink} needs {package} ({problem}); pip install -e '.[{extra}]' in the checkout"
        ) from None
