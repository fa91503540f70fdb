"""A reader of a log in a store never waits: what it reads is fetched ahead, within a bound, and an outage is shown."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: nothing can decode segments")

from causal.errors import CorruptData, DeterminantsLost, Unavailable
from operators.ingest import read_ahead as ingest_ahead
from operators.ingest.contract import Segment, segment_name
from operators.ingest.ingest_log import IngestLog
from operators.ingest.read_ahead import ReadAhead
from operators.ingest.reader import IngestReader
from tests.properties.objects import Memory
from tests.unit.ingest.test_ingest_reader import encoded

FOLDER, END_S = "ingest/numbers", 60.0


class Store(Memory):
    """A store in memory that can be away, and knows which segments were read."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.fetched: list[str] = []
        self.looks = 0

    def read(self, name: str) -> bytes:
        """Do what `causal.storage.shared.Depot.read` does."""
        if self.away:
            raise Unavailable("away")
        if "/segments/" in name:
            self.fetched.append(name.rpartition("/")[2])
        return super().read(name)

    def names(self, folder: str) -> list[str]:
        """Do what `causal.storage.shared.Depot.names` does."""
        self.looks += 1
        if self.away:
            raise Unavailable("away")
        return super().names(folder)


def published(store: Memory, batches: list[int]) -> IngestLog:
    """Return a log with batches of this many rows 0, 1, 2 …, in one segment each, and its end."""
    log = IngestLog(store, FOLDER, 1)
    log.create()
    token, count = log.take_over(), 0
    for batch, rows in enumerate(batches):
        name = segment_name(batch, 0, token, 0, 0)
        digest = log.write_segment(name, encoded(list(range(count, count + rows))))
        log.publish("q", batch, token, [Segment(name, 0, 0, rows, digest)])
        count += rows
    log.end(token)
    return log


def reader_of(store: Memory) -> IngestReader:
    ahead = ReadAhead(lambda: IngestLog(store, FOLDER, 1), 1, "numbers", "memory", reports=True)
    return IngestReader(ahead, 0, "numbers")


def rows_from(reader: IngestReader, position: int, count: int) -> list[int]:
    """Return that many rows; each read is asked for again until its segment is here."""
    rows: list[Any] = []
    end_s = time.monotonic() + END_S
    while len(rows) < count:
        assert time.monotonic() < end_s
        read = reader.read(position + len(rows), count - len(rows))
        if read is None:
            time.sleep(reader.ready_in_s(position + len(rows)))
        else:
            rows += cast("list[Any]", read.records)
    return [row["n"] for row in rows]


def await_(holds: Any) -> None:
    end_s = time.monotonic() + END_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def test_rows_are_read_from_any_position_and_what_is_covered_goes() -> None:
    store = Store()
    published(store, [3, 0, 4, 2])
    reader = reader_of(store)
    assert rows_from(reader, 0, 9) == list(range(9))
    assert rows_from(reader, 2, 4) == [2, 3, 4, 5]
    reader.completed(8)
    await_(lambda: "ingest/numbers/manifests/0000000000" not in store.stored)
    reader.close()
    later = reader_of(store)
    assert rows_from(later, 8, 1) == [8]
    await_(lambda: later.read(9, 1) is not None)
    with pytest.raises(DeterminantsLost, match="was already released"):
        later.read(2, 1)
    later.close()


def test_no_more_is_fetched_ahead_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(bytes(encoded([0])))
    monkeypatch.setattr(ingest_ahead, "AHEAD_BYTES", 2 * size)
    monkeypatch.setattr(ingest_ahead, "REPORT_S", 0.01)
    store = Store()
    published(store, [1] * 8)
    reader = reader_of(store)
    assert rows_from(reader, 0, 3) == [0, 1, 2]
    await_(lambda: len(store.fetched) >= 5)
    looks = store.looks
    await_(lambda: store.looks > looks + 1)  # it looks elsewhere only when there is nothing to fetch
    assert len(store.fetched) == 5
    assert rows_from(reader, 3, 5) == [3, 4, 5, 6, 7]
    assert len(store.fetched) == len(set(store.fetched)) == 8, "each was fetched once"
    reader.close()


def test_a_store_that_is_away_gives_nothing_and_is_shown_until_it_is_back() -> None:
    store = Store()
    published(store, [2, 2])
    reader = reader_of(store)
    assert rows_from(reader, 0, 2) == [0, 1]
    reader.close()
    store.away = True
    reader = reader_of(store)
    assert reader.read(2, 9) is None and reader.counters() == {"ingest_store_waiting_s": 0.0}
    await_(lambda: reader.counters()["ingest_store_waiting_s"] > 0)
    assert reader.read(2, 9) is None
    store.away = False
    assert rows_from(reader, 2, 2) == [2, 3]
    await_(lambda: reader.counters()["ingest_store_waiting_s"] == 0)
    reader.close()


def test_what_the_thread_finds_wrong_is_raised_to_the_reader() -> None:
    store = Store()
    log = published(store, [2])
    name = next(name for name in store.stored if "/segments/" in name)
    store.stored[name] = b"other"
    reader = reader_of(store)
    with pytest.raises(CorruptData, match="does not match its digest"):
        rows_from(reader, 0, 1)
    reader.close()
    beyond = reader_of(store)
    with pytest.raises(DeterminantsLost, match="the job has read up to 7"):
        rows_from(beyond, 7, 1)
    beyond.close()
    assert log.where == "memory:///store: ingest/numbers"


def test_a_reader_that_begins_while_batches_are_released_follows_to_the_lowest(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    log = published(store, [2, 2, 2])
    first = IngestLog.first

    def slow(self: IngestLog) -> Any:
        manifest = first(self)
        if "gone" not in store.stored:  # all channels release two batches before the next step
            store.stored["gone"] = b""
            log.release(0, 2)
        return manifest

    monkeypatch.setattr(IngestLog, "first", slow)
    reader = reader_of(store)
    assert rows_from(reader, 5, 1) == [5]
    reader.close()
    store.stored.pop("gone")
    direct = IngestReader(log, 0, "numbers")
    assert rows_from(direct, 5, 1) == [5]
