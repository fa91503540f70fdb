"""`change` finds the gaps that rows have: of the part that stops alone, until the end, and across a rollback."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.jobs import changing_ledger
from benchmarks.jobs.changing_ledger import Row
from benchmarks.jobs.stamped_sink import Arrivals, Stamp, stamps_path
from benchmarks.recovery import change
from operators.records.keys import key_group, task_of_group

MS, GROUPS = 1_000_000, 128


def key_of(part: int) -> int:
    """Return a key of one of the four parts."""
    return next(key for key in range(1000) if task_of_group(key_group(key, GROUPS), change.WIDE, GROUPS) == part)


def stamped(path: Path, *stamps: tuple[int, int, int]) -> Arrivals:
    arrivals = Arrivals(path)
    more(path, *stamps)
    arrivals.look()
    return arrivals


def more(path: Path, *stamps: tuple[int, int, int]) -> None:
    with open(stamps_path(path), "ab") as file:
        file.writelines(struct.pack("<qqq", *stamp) for stamp in stamps)


def test_a_part_of_the_keys_that_stops_alone_has_a_gap() -> None:
    rows: list[Row] = []
    stamps: list[Stamp] = []
    for at_ms in range(100):
        first = len(rows)
        rows += [(key_of(part), 1, 0, 0, 0, 1) for part in range(4) if part != 2 or not 30 <= at_ms < 70]
        stamps.append(Stamp(at_ms * MS, first, len(rows) - first))
    parts = change.by_part(stamps, rows, GROUPS)
    assert [change.gap_ms(moments, 20 * MS, 100 * MS) for moments in parts] == [1, 1, 41, 1]
    assert change.gap_ms(parts[2], 0, 29 * MS) == 1


def test_a_gap_that_has_not_ended_counts_until_the_end() -> None:
    assert change.gap_ms([0, 1 * MS, 2 * MS], 1 * MS, 50 * MS) == 48
    assert change.gap_ms([0, 1 * MS, 60 * MS], 1 * MS, 50 * MS) == 49


def test_rows_that_are_written_again_count_once_and_withdrawn_rows_twice(tmp_path: Path) -> None:
    arrivals = stamped(tmp_path / "out.db", (1, 0, 10), (2, 10, 10), (3, 10, 15))
    assert arrivals.stamps == [Stamp(1, 0, 10), Stamp(2, 10, 10), Stamp(3, 20, 5)] and arrivals.rows == 25
    arrivals.will_return_to(10)
    more(tmp_path / "out.db", (4, 25, 5))
    arrivals.look()
    assert arrivals.rows == 30 and arrivals.returned_ns is None, "the old version still writes"
    more(tmp_path / "out.db", (5, 10, 1), (6, 11, 29))
    arrivals.look()
    returned = Stamp(arrivals.returned_ns or 0, arrivals.withdrawn, arrivals.rows)
    assert returned == Stamp(5, 20, 40)
    assert arrivals.stamps[-2:] == [Stamp(5, 10, 1), Stamp(6, 11, 29)]


def test_a_stamp_of_which_half_is_written_is_read_later(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    arrivals = stamped(path, (1, 0, 10), (2, 10, 10))
    whole = stamps_path(path).read_bytes()
    stamps_path(path).write_bytes(whole + whole[:5])
    arrivals.look()
    stamps_path(path).write_bytes(whole + struct.pack("<qqq", 3, 20, 1))
    arrivals.look()
    assert arrivals.rows == 21


def test_every_fault_of_either_operator_is_counted(tmp_path: Path) -> None:
    out, apart = tmp_path / "out.db", changing_ledger.database_apart(tmp_path / "out.db")
    counted = [[changing_ledger.make(p, i, 100)[0], 1, p, i, 0, 1] for p in range(2) for i in range(5)]
    numbered = [[i + 1, i, 1] for i in range(4)]

    def checked(rows: Sequence[Any], rows_apart: Sequence[Any]) -> dict[str, int]:
        for path, records in ((out, rows), (apart, rows_apart)):
            path.unlink(missing_ok=True)
            with sqlite3.connect(path) as db:
                db.execute("CREATE TABLE output(task TEXT, position INTEGER, record TEXT)")
                texts = [(position, json.dumps(record)) for position, record in enumerate(records)]
                db.executemany("INSERT INTO output VALUES('out/0', ?, ?)", texts)
        return changing_ledger.check(out, 5, 4)

    assert checked(counted, numbered) == {"rows": 14, "lost": 0, "doubled": 0, "contradicted": 0}
    assert checked(counted[:-1], numbered) == {"rows": 13, "lost": 1, "doubled": 0, "contradicted": 0}
    assert checked(counted, [*numbered, [5, 3, 1]]) == {"rows": 15, "lost": 0, "doubled": 1, "contradicted": 0}
    assert checked(counted, [[2, 0, 1], *numbered[1:]])["contradicted"] == 2


def test_the_operator_apart_is_compared_with_itself_before() -> None:
    runs = {
        "stop.wider.apart_gap_ms": [500.0, 600.0],
        "stop.wider.apart_calm_ms": [5.0, 6.0],
        "stop.upgrade.apart_gap_ms": [4.0],
        "stop.upgrade.apart_calm_ms": [5.0],
        "running.wider.apart_gap_ms": [5.0],
        "running.wider.apart_calm_ms": [5.0],
    }
    figures = change.apart(runs, "stop")
    assert figures["stop.apart_extra_ms"]["runs"] == [495.0, 594.0, 0.0]
    assert figures["stop.apart_ratio"]["median"] == 100
    assert change.apart(runs, "running")["running.apart_ratio"]["high"] == 1
    assert change.apart({}, "running") == {}


def test_the_code_has_one_version_to_replace() -> None:
    """The copies of the file differ in it."""
    assert changing_ledger.text_of(7).count("VERSION = 7\n") == 1
    assert changing_ledger.text_of(1) == Path(changing_ledger.__file__).read_text()
