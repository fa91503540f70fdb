"""The behaviour of `PostgresSink` that users see, beyond the promises that every sink makes."""

from __future__ import annotations

import json
import math
import random
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.postgres import Postgres
from causal.errors import (
    CorruptData,
    DeterminantsLost,
    Fenced,
    InvariantViolation,
    PipelineError,
    RowRefused,
    Superseded,
    Unavailable,
)
from causal.logs.log import LogDelta
from causal.ports import Bundle
from operators.sinks import PostgresSink, conformance
from operators.sinks.contract import SinkStore, encode_json
from tests.members import members

NUMBERS = count()
HERE = Path()


def bundle(sink: PostgresSink, first: int, *records: Any) -> Bundle:
    """Those records, from position `first` on."""
    return Bundle(first, len(records), sink.encode(records), first + len(records), 0, 1, ())


def written_at_last(store: SinkStore, wanted: Bundle) -> bool:
    """Retry as a job does, up to a bound."""
    for _ in range(400):
        try:
            store.write(wanted)
        except Unavailable:
            continue
        return True
    return False


@contextmanager
def opened(sink: PostgresSink, task: str = "out/0", run: str = "run-1", incarnation: int = 1) -> Iterator[SinkStore]:
    store = sink.open_store(task, HERE)
    store.open(task, run, incarnation)
    try:
        yield store
    finally:
        store.close()


def own_table(server: Postgres, columns: str) -> str:
    table = f"shop_{next(NUMBERS)}"
    server.query(f"CREATE TABLE {table}({columns})")
    return table


def test_a_table_of_the_sink_is_the_one_that_was_promised(shared_postgres: Postgres) -> None:
    sink = PostgresSink(shared_postgres.dsn, table="promised")
    records = [
        {"text": 'a\nb\\"ü\U0001f600', "n": 1 << 80},
        [1, 2.5, None],
        "text",
        7,
        datetime(2026, 1, 2, tzinfo=UTC),
    ]
    with opened(sink) as store:
        store.write(bundle(sink, 0, *records))
    rows = shared_postgres.query("SELECT task, position, record FROM promised ORDER BY position")
    assert rows[:4] == [("out/0", place, record) for place, record in enumerate(records[:4])]
    assert rows[4][2] == "2026-01-02T00:00:00+00:00"


def test_columns_take_what_the_types_of_the_table_take(shared_postgres: Postgres) -> None:
    table = own_table(
        shared_postgres,
        'at timestamptz, price numeric(10,2), tags text[], doc jsonb, "odd % ""name" int, kept int DEFAULT 7',
    )
    names = ["at", "price", "tags", "doc", 'odd % "name']
    sink = PostgresSink(shared_postgres.dsn, table=table, columns=names)
    sink.check()
    with opened(sink) as store:
        full = {
            "at": datetime(2026, 1, 2, tzinfo=UTC),
            "price": 1.5,
            "tags": ["a", "b"],
            "doc": {"x": [1]},
            names[4]: 3,
        }
        store.write(bundle(sink, 0, {**full, "kept": 9, "more": 1}, {"price": "2.25"}))
    rows = shared_postgres.query(f'SELECT at, price::text, tags, doc, "odd % ""name", kept FROM {table}')
    assert rows == [(full["at"], "1.50", ["a", "b"], {"x": [1]}, 3, 7), (None, "2.25", None, None, None, 7)]


def test_every_refused_row_is_named_with_the_words_of_the_server(shared_postgres: Postgres) -> None:
    table = own_table(shared_postgres, "k text PRIMARY KEY, n int NOT NULL CHECK (n < 100)")
    sink = PostgresSink(shared_postgres.dsn, table=table, columns=["k", "n"])
    good = [{"k": f"k{n}", "n": n} for n in range(20)]
    bad = {3: {"k": "a", "n": 100}, 7: {"k": "b", "n": "many"}, 8: {"k": "k1", "n": 1}, 11: {"k": "c"}, 19: ["k", 1]}
    rows = [bad.get(place, record) for place, record in enumerate(good)]
    with opened(sink) as store:
        with pytest.raises(RowRefused) as refused:
            store.write(bundle(sink, 0, *rows))
        reasons = dict(refused.value.rows)
        assert sorted(reasons) == sorted(bad)
        for place, words in {
            3: "check constraint",
            7: "invalid input syntax",
            8: "duplicate key",
            11: "null value",
        }.items():
            assert words in reasons[place]
        assert shared_postgres.query(f"SELECT count(*) FROM {table}") == [(0,)]
        store.write(replace(bundle(sink, 0, *rows), refused=refused.value.rows))
        assert store.last_bundle().refused == len(bad)
    keys = {k for (k,) in shared_postgres.query(f"SELECT k FROM {table}")}
    assert keys == {f"k{n}" for n in range(20) if n not in bad}
    noted = shared_postgres.query("SELECT position, reason FROM causal_refused WHERE sink = %s", f"public.{table}")
    assert dict(noted) == reasons


@pytest.mark.parametrize("record", ["\x00", "\ud800"], ids=["nul", "half a character"])
def test_what_jsonb_does_not_take_is_a_refused_row(record: Any, shared_postgres: Postgres) -> None:
    sink = PostgresSink(shared_postgres.dsn, table=f"odd_{next(NUMBERS)}")
    with opened(sink) as store:
        with pytest.raises(RowRefused, match="the row at position 1 was refused"):
            store.write(bundle(sink, 0, "fine", record))
        store.write(bundle(sink, 0, "fine"))


def test_a_trigger_and_a_deferred_constraint_refuse_rows_too(shared_postgres: Postgres) -> None:
    table = own_table(shared_postgres, "k text, n int UNIQUE DEFERRABLE INITIALLY DEFERRED")
    shared_postgres.query(
        f"""CREATE FUNCTION no_{table}() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN IF NEW.k = 'no' THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW; END $$"""
    )
    shared_postgres.query(f"CREATE TRIGGER no BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION no_{table}()")
    sink = PostgresSink(shared_postgres.dsn, table=table, columns=["k", "n"])
    with opened(sink) as store:
        with pytest.raises(RowRefused) as refused:
            store.write(
                bundle(sink, 0, {"k": "a", "n": 1}, {"k": "no", "n": 2}, {"k": "b", "n": 3}, {"k": "c", "n": 1})
            )
        reasons = dict(refused.value.rows)
        assert sorted(reasons) == [1, 3] and "not this one" in reasons[1] and "duplicate key" in reasons[3]


def test_rows_of_another_run_are_refused_replaced_or_added_to(shared_postgres: Postgres) -> None:
    def one_row(run: str, **options: Any) -> list[Any]:
        sink = PostgresSink(shared_postgres.dsn, **options)
        with opened(sink, run=run) as store:
            store.write(bundle(sink, 0, {"k": run}))
        return [record for (record,) in shared_postgres.query(f"SELECT to_jsonb(t) FROM {options['table']} t")]

    table = own_table(shared_postgres, "k text")
    assert one_row("run-1", table=table, columns=["k"]) == [{"k": "run-1"}]
    with pytest.raises(PipelineError, match=f"table public.{table} holds rows of another run"):
        one_row("run-2", table=table, columns=["k"])
    assert one_row("run-2", table=table, columns=["k"], existing="append") == [{"k": "run-1"}, {"k": "run-2"}]
    placed = own_table(shared_postgres, "k text, task text, place bigint")
    arguments: dict[str, Any] = {"table": placed, "columns": ["k"], "place_columns": ["task", "place"]}
    one_row("run-1", **arguments)
    assert one_row("run-2", **arguments, existing="replace") == [{"k": "run-2", "task": "out/0", "place": 0}]


def test_a_bundle_that_is_being_written_is_replaced_as_well(shared_postgres: Postgres) -> None:
    sink = PostgresSink(shared_postgres.dsn, table="taken_over", existing="replace", timeout_ms=60_000)
    older, newer = sink.open_store("out/0", HERE), sink.open_store("out/0", HERE)
    older.open("out/0", "run-1", 1)
    older.write(bundle(sink, 0, {"run": 1}))
    taking_over = threading.Thread(target=lambda: newer.open("out/0", "run-2", 1))
    with older._connection.transaction():  # type: ignore[attr-defined]
        older.write(replace(bundle(sink, 1, {"run": 1}), logs=(LogDelta(0, 0, 0, b"1"),)))
        taking_over.start()
        while not shared_postgres.query("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
            assert taking_over.is_alive()
    taking_over.join()
    for table in ("taken_over", "causal_held", "causal_refused"):
        ours = "" if table == "taken_over" else "WHERE sink = 'public.taken_over'"
        assert shared_postgres.query(f"SELECT * FROM {table} {ours}") == []
    newer.write(bundle(sink, 0, {"run": 2}))
    assert newer.last_bundle().next == 1
    with pytest.raises(Superseded, match="newer run"):
        older.write(bundle(sink, 2, {"run": 1}))
    assert shared_postgres.query("SELECT record FROM taken_over") == [({"run": 2},)]
    older.close()
    newer.close()


def test_a_store_can_take_rows_back_only_where_rows_have_their_places(shared_postgres: Postgres) -> None:
    def withdraws(sink: PostgresSink) -> bool:
        return hasattr(sink.open_store("out/0", HERE), "withdraw")

    assert withdraws(PostgresSink(shared_postgres.dsn))
    assert not withdraws(PostgresSink(shared_postgres.dsn, columns=["k"]))
    assert withdraws(PostgresSink(shared_postgres.dsn, columns=["k"], place_columns=["task", "position"]))


WRONG_TABLES = {
    "table public.wrong does not exist": "SELECT 1",
    "has no column n; it has k": "CREATE TABLE wrong(k text)",
    "is unlogged or temporary": "CREATE UNLOGGED TABLE wrong(k text, n int)",
    "column n of public.wrong is generated": "CREATE TABLE wrong(k text, n int GENERATED ALWAYS AS (1) STORED)",
    "is not a table that accepts rows": "CREATE SEQUENCE wrong",
}


@pytest.mark.parametrize("words", WRONG_TABLES)
def test_a_table_that_is_not_fit_is_known_before_the_job_starts(words: str, shared_postgres: Postgres) -> None:
    shared_postgres.query(WRONG_TABLES[words])
    sink = PostgresSink(shared_postgres.dsn, table="wrong", columns=["k", "n"])
    try:
        with pytest.raises(PipelineError, match=words):
            sink.check()
        with pytest.raises(PipelineError, match=words):
            sink.open_store("out/0", HERE).open("out/0", "run-1", 1)
    finally:
        shared_postgres.query(f"DROP {'SEQUENCE' if 'SEQUENCE' in WRONG_TABLES[words] else 'TABLE'} IF EXISTS wrong")


def test_a_table_that_no_sink_made_is_left_alone(shared_postgres: Postgres) -> None:
    table = own_table(shared_postgres, "task text, position bigint, record jsonb")
    with pytest.raises(PipelineError, match=f"table public.{table} exists but was not created by a sink"):
        PostgresSink(shared_postgres.dsn, table=table).open_store("out/0", HERE).open("out/0", "run-1", 1)


def test_a_dsn_that_names_nothing_is_refused(shared_postgres: Postgres) -> None:
    for part, words in (("dbname=nowhere", "nowhere"), ("user=nobody_there", "nobody_there")):
        with pytest.raises(PipelineError, match=f'"{words}" does not exist'):
            PostgresSink(f"{shared_postgres.dsn} {part}").check()


def test_no_message_has_the_password(tmp_path: Path) -> None:
    sink = PostgresSink(f"postgresql://app:secret@/shop?host={tmp_path}")
    sink.check()
    with pytest.raises(Unavailable, match=f"PostgreSQL shop at {tmp_path} cannot be reached") as problem:
        sink.open_store("out/0", HERE).open("out/0", "run-1", 1)
    assert "secret" not in str(problem.value)


def test_a_role_lacks_what_it_needs(shared_postgres: Postgres) -> None:
    table = own_table(shared_postgres, "k text")
    shared_postgres.query("CREATE ROLE clerk LOGIN CONNECTION LIMIT 1")
    dsn = shared_postgres.dsn.replace("user=test", "user=clerk")
    try:
        with pytest.raises(
            PipelineError, match=f"table public.{table} cannot be written by this role; grant it INSERT"
        ):
            PostgresSink(dsn, table=table, columns=["k"]).check()
        shared_postgres.query(f"GRANT INSERT ON {table} TO clerk")
        shared_postgres.query("CREATE SCHEMA private")
        with pytest.raises(PipelineError, match="permission denied for schema private .42501.; grant"):
            PostgresSink(dsn, table="private.rows").open_store("out/0", HERE).open("out/0", "run-1", 1)
        import psycopg

        with psycopg.connect(dsn), pytest.raises(Unavailable, match="too many connections for role"):
            PostgresSink(dsn, table=table, columns=["k"]).open_store("out/0", HERE).open("out/0", "run-1", 1)
    finally:
        shared_postgres.query("DROP OWNED BY clerk")
        shared_postgres.query("DROP SCHEMA IF EXISTS private CASCADE")
        shared_postgres.query("DROP ROLE clerk")


def raising(server: Postgres, table: str, state: str) -> None:
    """The server says that code when a row comes."""
    server.query(
        f"""CREATE OR REPLACE FUNCTION raise_{table}() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '{state}'; END $$"""
    )
    server.query(f"CREATE OR REPLACE TRIGGER raising BEFORE INSERT ON {table} EXECUTE FUNCTION raise_{table}()")


STATES = {
    "53100": "no space is left on the server: free space",
    "53200": "out of memory",
    "57014": "took too long",
    "40001": "the write can be repeated safely",
    "58030": "the write can be repeated safely",
}


@pytest.mark.parametrize("state", STATES)
def test_what_may_pass_is_tried_again_and_names_the_remedy(state: str, shared_postgres: Postgres) -> None:
    table = own_table(shared_postgres, "n int")
    sink = PostgresSink(shared_postgres.dsn, table=table, columns=["n"])
    with opened(sink) as store:
        raising(shared_postgres, table, state)
        with pytest.raises(Unavailable, match=f"could not extend file .{state}.; .*{STATES[state]}"):
            store.write(bundle(sink, 0, {"n": 1}))
        shared_postgres.query(f"DROP TRIGGER raising ON {table}")
        store.write(bundle(sink, 0, {"n": 1}))
    assert shared_postgres.query(f"SELECT n FROM {table}") == [(1,)]


def test_a_lock_of_another_session_is_waited_for_no_longer_than_configured(shared_postgres: Postgres) -> None:
    import psycopg

    table = own_table(shared_postgres, "n int")
    sink = PostgresSink(shared_postgres.dsn, table=table, columns=["n"], timeout_ms=2500)
    with opened(sink) as store:
        with psycopg.connect(shared_postgres.dsn) as other:
            other.execute(f"LOCK TABLE {table}")
            with pytest.raises(Unavailable, match="another session has held a lock|took too long|does not answer"):
                store.write(bundle(sink, 0, {"n": 1}))
        store.write(bundle(sink, 0, {"n": 1}))
    assert shared_postgres.query(f"SELECT n FROM {table}") == [(1,)]


def test_a_schema_that_changes_is_waited_for(shared_postgres: Postgres) -> None:
    table = own_table(shared_postgres, "n int")
    sink = PostgresSink(shared_postgres.dsn, table=table, columns=["n"])
    with opened(sink) as store:
        for change, words, remedy in (
            (
                f"ALTER TABLE {table} RENAME TO away",
                "a table is missing: restore it",
                f"ALTER TABLE away RENAME TO {table}",
            ),
            (
                f"ALTER TABLE {table} RENAME n TO m",
                "a column is missing: restore it",
                f"ALTER TABLE {table} RENAME m TO n",
            ),
        ):
            shared_postgres.query(change)
            with pytest.raises(Unavailable, match=words):
                store.write(bundle(sink, 0, {"n": 1}))
            shared_postgres.query(remedy)
        store.write(bundle(sink, 0, {"n": 1}))
    assert shared_postgres.query(f"SELECT n FROM {table}") == [(1,)]


def test_a_server_that_takes_no_writes_is_waited_for(own_postgres: Postgres) -> None:
    own_postgres.query("CREATE ROLE app LOGIN SUPERUSER")
    sink = PostgresSink(own_postgres.dsn.replace("user=test", "user=app"))
    with opened(sink) as store:
        own_postgres.query("ALTER ROLE app SET default_transaction_read_only = on")
        own_postgres.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'causal'")
        with pytest.raises(Unavailable, match="terminating connection"):
            store.write(bundle(sink, 0, 1))
        with pytest.raises(Unavailable, match="accepts no writes"):
            store.write(bundle(sink, 0, 1))
        own_postgres.query("ALTER ROLE app RESET default_transaction_read_only")
        store.write(bundle(sink, 0, 1))
    assert own_postgres.query("SELECT record FROM output") == [(1,)]


@pytest.mark.campaign
def test_a_commit_survives_the_server_whatever_its_role_is_set_to(own_postgres: Postgres) -> None:
    own_postgres.query("ALTER ROLE test SET synchronous_commit = off")
    own_postgres.query("ALTER SYSTEM SET wal_writer_delay = '10s'")
    own_postgres.query("SELECT pg_reload_conf()")
    sink = PostgresSink(own_postgres.dsn)
    store = sink.open_store("out/0", HERE)
    store.open("out/0", "run-1", 1)
    for place in range(3):
        store.write(bundle(sink, place, place))
        own_postgres.kill()
        own_postgres.start()
        assert own_postgres.query("SELECT position FROM output ORDER BY 1") == [(each,) for each in range(place + 1)]
        with pytest.raises(Unavailable):
            store.last_bundle()
    store.close()


def test_what_was_asked_of_a_stopped_server_happens_once(own_postgres: Postgres) -> None:
    sink = PostgresSink(own_postgres.dsn, timeout_ms=1000)
    with opened(sink) as store:
        for place in range(2):
            with own_postgres.away(), pytest.raises(Unavailable, match="does not answer"):
                store.write(bundle(sink, place, place))
            assert written_at_last(store, bundle(sink, place, place))
    assert own_postgres.query("SELECT position FROM output ORDER BY 1") == [(each,) for each in range(2)]


def test_rows_that_were_acknowledged_and_are_gone_are_noticed(shared_postgres: Postgres) -> None:
    sink = PostgresSink(shared_postgres.dsn, table="gone_back")
    with opened(sink) as store:
        store.write(bundle(sink, 0, 1, 2))
        before = shared_postgres.query("SELECT * FROM causal_task WHERE sink = 'public.gone_back'")
        store.write(bundle(sink, 2, 3))
        shared_postgres.query("DELETE FROM gone_back WHERE position = 2")
        digest, last = before[0][5], before[0][6]
        shared_postgres.query(
            "UPDATE causal_task SET next = 2, digest = %s, last = %s WHERE sink = 'public.gone_back'", digest, last
        )
        with pytest.raises(DeterminantsLost, match="up to 3 were acknowledged, but it has rows only up to 2"):
            store.write(bundle(sink, 3, 4))
    again = sink.open_store("out/0", HERE)
    assert again.open("out/0", "run-1", 2).next == 2
    again.close()


def test_an_account_that_cannot_be_read_is_not_used(shared_postgres: Postgres) -> None:
    sink = PostgresSink(shared_postgres.dsn, table="spoilt")
    with opened(sink) as store:
        store.write(bundle(sink, 0, 1))
    shared_postgres.query("UPDATE causal_task SET epochs = '\\xc1' WHERE sink = 'public.spoilt'")
    with pytest.raises(CorruptData, match="causal_task and causal_held of public.spoilt, task out/0"):
        sink.open_store("out/0", HERE).open("out/0", "run-1", 2)


def test_rows_that_are_not_lines_are_refused(shared_postgres: Postgres) -> None:
    sink = PostgresSink(shared_postgres.dsn, table="lines")
    with opened(sink) as store, pytest.raises(InvariantViolation, match="one line per row"):
        store.write(Bundle(0, 3, b"1\n2\n", 1, 0, 1, ()))


def test_two_sinks_of_one_database_do_not_mix(shared_postgres: Postgres) -> None:
    sinks = [PostgresSink(shared_postgres.dsn, table=table) for table in ("left", "right")]
    with opened(sinks[0]) as left, opened(sinks[1], incarnation=5) as right:
        left.write(bundle(sinks[0], 0, "l"))
        for place in range(3):
            right.write(Bundle(place, 1, b'"r"\n', place, 0, 5, ()))
        left.write(bundle(sinks[0], 1, "l"))
    assert shared_postgres.query('SELECT record FROM "left"') == [("l",)] * 2
    assert shared_postgres.query('SELECT record FROM "right"') == [("r",)] * 3


def test_a_store_that_is_not_open_says_so(shared_postgres: Postgres) -> None:
    sink = PostgresSink(shared_postgres.dsn, table="closed")
    with pytest.raises(InvariantViolation, match="created"):
        sink.open_store("out/0", HERE).open("out/1", "run-1", 1)
    store = sink.open_store("out/0", HERE)
    store.open("out/0", "run-1", 3)
    with pytest.raises(Fenced):
        sink.open_store("out/0", HERE).open("out/0", "run-1", 2)
    store.close()


def test_determinants_of_covered_epochs_leave_the_database(shared_postgres: Postgres) -> None:
    sink = PostgresSink(shared_postgres.dsn, table="covered")
    subject = conformance.Subject(sink, lambda task: [])
    store, state = subject.opened()
    conformance.fill(subject, store, state, 3 * conformance.EPOCH_ROWS)
    store.truncate(2)
    kept = shared_postgres.query("SELECT DISTINCT epoch FROM causal_held WHERE sink = 'public.covered'")
    assert kept == [(2,)]
    store.close()


HOUR = timezone(timedelta(hours=1))
VALUES = [
    None, True, False, 0, 1, -1, 16777217, (1 << 53) + 1, 1 << 62, 1 << 80, 0.0, -0.0, 0.1, 1.0, 1.5, 16777217.0, 1e22,
    1e300, 5e-324, math.pi, math.nan, math.inf, -math.inf, Decimal("1.25"), Decimal("1.239"), Decimal("5"), "", "ab",
    "ab ", "5", "1.5", "true", "NaN", "2020-01-01", "2020-01-01T05:00:00", b"", b"ab", b"\xff\x00\xde",
    datetime(2020, 1, 1), datetime(2020, 1, 1, 5, 6, 7), datetime(2020, 1, 1, 0, 0, 0, 123456),
    datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=HOUR), datetime(2020, 1, 1, 5, 0, 0, 123456, HOUR),
    [1], ["a"], [16777217], [0.1], {"a": 1},
]  # fmt: skip
KINDS = [
    "boolean", "smallint", "integer", "bigint", "real", "double precision", "numeric", "numeric(10,2)", "text",
    "varchar(3)", "char(4)", "bytea", "timestamptz", "timestamptz(0)", "timestamp", "timestamp(3)", "date", "int[]",
    "float4[]", "float8[]", "text[]", "domain_float",
]  # fmt: skip


def same(put: Any, read: Any) -> bool:
    """Return whether what psycopg reads is what was put; what JSON has no type for may have been text."""
    if isinstance(put, bool) or isinstance(read, bool):
        return put is read
    if isinstance(put, float) and isinstance(read, float) and (math.isnan(put) or not put):
        return math.isnan(put) == math.isnan(read) and (bool(put) or math.copysign(1, put) == math.copysign(1, read))
    if isinstance(read, Decimal) and isinstance(put, (float, str)):
        return read.is_nan() if str(put).lower() == "nan" else read == Decimal(str(put))
    if isinstance(put, str) and not isinstance(read, (str, bytes)):
        return str(read) in (put, f"{put} 00:00:00") or str(read).replace(" ", "T") == put or repr(read) == put.lower()
    if isinstance(put, bytes) and isinstance(read, str):
        return read == f"\\x{put.hex()}"
    if isinstance(put, (str, datetime, Decimal)) and isinstance(read, str):
        return bool(read == json.loads(encode_json(put)))
    if isinstance(put, float) and isinstance(read, str):
        return str(put) == read.lower().replace("infinity", "inf")
    if isinstance(put, datetime) and type(read) is date:
        return put.date() == read and put.timetz() == time()
    if isinstance(put, datetime):
        return isinstance(read, datetime) and put == read and (put.tzinfo is None) == (read.tzinfo is None)
    return bool(put == read)


@pytest.mark.parametrize(
    "kind", members(KINDS, "smallint", "real", "numeric(10,2)", "varchar(3)", "timestamptz(0)", "float4[]")
)
def test_a_column_keeps_a_value_or_refuses_the_row(kind: str, shared_postgres: Postgres) -> None:
    if kind == "domain_float":
        shared_postgres.query("DROP DOMAIN IF EXISTS domain_float")
        shared_postgres.query("CREATE DOMAIN domain_float AS real")
    table = own_table(shared_postgres, f"place bigint, task text, value {kind}")
    sink = PostgresSink(shared_postgres.dsn, table=table, columns=["value"], place_columns=["task", "place"])
    with opened(sink) as store:
        wanted = bundle(sink, 0, *({"value": value} for value in VALUES))
        refused: dict[int, str] = {}
        while True:
            try:
                store.write(replace(wanted, refused=tuple(sorted(refused.items()))))
                break
            except RowRefused as problem:
                assert not refused.keys() & dict(problem.rows).keys()
                refused |= dict(problem.rows)
    kept = dict(shared_postgres.query(f"SELECT place, value FROM {table}"))
    assert kept.keys() == set(range(len(VALUES))).difference(refused)
    changed = {
        repr(VALUES[at]): read
        for at, read in kept.items()
        if not same(VALUES[at], read.rstrip(" ") if kind == "char(4)" and read else read)
    }
    assert not changed, changed
    assert len(kept) > 1 and all(
        not words.startswith("invalid input") or "column" not in words for words in refused.values()
    )


def test_a_float_column_keeps_every_float(shared_postgres: Postgres) -> None:
    table = own_table(shared_postgres, "place bigint, task text, value float8")
    sink = PostgresSink(shared_postgres.dsn, table=table, columns=["value"], place_columns=["task", "place"])
    chance = random.Random(3)
    floats = [struct.unpack("<d", chance.randbytes(8))[0] for _ in range(5000)]
    floats += [math.ldexp(chance.getrandbits(53), chance.randrange(-80, 80)) for _ in range(5000)]
    floats += [5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 9007199254740992.0, 1e22, 1e23, -0.0]
    with opened(sink) as store:
        store.write(bundle(sink, 0, *({"value": value} for value in floats)))
    kept = dict(shared_postgres.query(f"SELECT place, value FROM {table}"))
    assert [value for at, value in enumerate(floats) if not same(value, kept[at])] == []


def test_every_reason_names_column_type_and_value(shared_postgres: Postgres) -> None:
    table = own_table(shared_postgres, 'place bigint, task text, "odd % \'n" real')
    name = "odd % 'n"
    sink = PostgresSink(shared_postgres.dsn, table=table, columns=[name], place_columns=["task", "place"])
    with (
        opened(sink) as store,
        pytest.raises(RowRefused, match="column odd % 'n takes real, which cannot keep 16777217 "),
    ):
        store.write(bundle(sink, 0, {name: 1.5}, {name: 16777217}))
