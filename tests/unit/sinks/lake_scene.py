"""Sinks of lakehouses under test: what a reader of ours sees, and what the library of the format sees."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partialmethod
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog, load_catalog

from causal.errors import PipelineError
from operators.outputs import open_output
from operators.sinks.conformance import Subject
from operators.sinks.lake.delta_sink import DeltaSink
from operators.sinks.lake.delta_table import DeltaLake
from operators.sinks.lake.iceberg_sink import IcebergSink
from operators.sinks.lake.lake_sink import LakeSink
from operators.sinks.lake.lake_table import LakeTable
from tests.unit.sinks.test_conformance import locked_file

KEY = b"of this test"
AT_ONCE = {"publish_s": 1e-9, "busy_ms": 20}
"""Each bundle is committed before the next one."""


def catalog_of(directory: Path) -> dict[str, str]:
    """Return the properties of a catalog in a directory."""
    return {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}/warehouse"}


def catalog(directory: Path) -> Catalog:
    return load_catalog("causal", **catalog_of(directory))


def delta(directory: Path, **options: Any) -> DeltaSink:
    return DeltaSink(directory / "table", **options)


def iceberg(directory: Path, **options: Any) -> IcebergSink:
    catalog(directory).create_namespace_if_not_exists("shop")
    return IcebergSink("shop.out", catalog_of(directory), **options)


FORMATS = {"delta": delta, "iceberg": iceberg}


def rows_of(sink: LakeSink, task: str = "out/0", uncovered: bool = True) -> list[Any]:
    """Return all rows of one task; their positions must follow one another but for what was refused."""
    try:
        output = open_output(sink)
        output.look()
    except PipelineError:
        return []
    batches = list(output.rows(task, 0, output.ends(uncovered).get(task, 0)))
    positions = [place for places, _ in batches for place in places.to_pylist()]
    assert positions == sorted(dict.fromkeys(positions))
    return [row for _, batch in batches for row in batch.to_pylist()]


def table_of(sink: LakeSink) -> pa.Table:
    """Return the rows that the library of the format finds in the newest version."""
    if isinstance(sink, DeltaSink):
        return pa.table(DeltaTable(sink.place).to_pyarrow_table())
    table = sink.table()
    table.open(False)
    table.look()
    return table._table.scan().to_arrow()  # type: ignore[attr-defined]


def journal_of(sink: LakeSink, task: str) -> Path:
    table = sink.table()
    table.open(False)
    return Path(table.location.removeprefix("file://")) / "_causal" / f"{task.replace('/', '-')}.journal"


def subject_of(sink: LakeSink) -> Subject:
    return Subject(
        sink,
        lambda task: rows_of(sink, task),
        away=lambda: locked_file(journal_of(sink, "out/0").with_suffix(".lock")),
        poison=lambda: {"task": "out/0", "n": "seven", "text": ""},
    )


def serve(ready: Connection) -> None:
    """Serve any number of clients of Delta tables, one per connection, until the process is killed."""
    with Listener(authkey=KEY) as listener:
        ready.send(listener.address)
        while True:
            Thread(target=_serve_one, args=(listener.accept(),), daemon=True).start()


def _serve_one(asking: Connection) -> None:
    lake = DeltaLake(asking.recv(), {})
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            name, arguments = asking.recv()
            try:
                asking.send((True, getattr(lake, name)(*arguments)))
            except Exception as problem:
                asking.send((False, problem))


class RemoteLake(LakeTable):
    """A client in another process: Delta's library cannot be used in a process forked from one that used it."""

    def __init__(self, address: Any, url: str) -> None:
        self.location, self.options = url, {}
        self._there: Connection = Client(address, authkey=KEY)
        self._there.send(url)

    def asked(self, name: str, *arguments: Any) -> Any:
        self._there.send((name, arguments))
        fine, answer = self._there.recv()
        if not fine:
            raise answer
        return answer


for _name in LakeTable.__abstractmethods__:
    setattr(RemoteLake, _name, partialmethod(RemoteLake.asked, _name))
RemoteLake.__abstractmethods__ = frozenset()


class RemoteDelta(DeltaSink):
    """A sink whose client is in another process."""

    address: Any = None

    def table(self) -> LakeTable:
        return RemoteLake(self.address, self.place)  # type: ignore[abstract]


@contextmanager
def remote_delta(directory: Path, **options: Any) -> Iterator[RemoteDelta]:
    """Yield a sink whose processes can be forked and killed."""
    here, there = Pipe()
    server = get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    try:
        sink = RemoteDelta(directory / "table", **options)
        sink.address = here.recv()
        yield sink
    finally:
        server.kill()
        server.join()
