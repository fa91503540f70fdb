"""Changes of a real PostgreSQL as records: what is rebuilt from them is the table, whatever was killed on the way."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.postgres import Postgres
from causal.errors import PipelineError
from causal.records.unreadable import Unreadable
from operators.sources import PostgresChanges
from operators.sources.postgres import feed
from operators.sources.postgres.replication_slots import name_of
from tests.faults.job import wait_for
from tests.servers.following import SOURCE, Follower, rebuilt

T = "CREATE TABLE t(k int PRIMARY KEY, v text, n numeric)"


@pytest.fixture
def server(logical_postgres: Postgres) -> Postgres:
    """The server whose tables are followed."""
    return logical_postgres


@pytest.fixture
def following(tmp_path: Path) -> Iterator[Callable[..., Follower]]:
    """`following(source, …)` follows a server's tables until the test ends."""
    started: list[Follower] = []

    def begin(source: PostgresChanges, **options: Any) -> Follower:
        directory = tmp_path / f"job{len(started)}"
        directory.mkdir()
        started.append(Follower(source, directory, **options))
        return started[-1].start()

    yield begin
    for follower in started:
        follower.kill()


def transact(server: Postgres, chance: random.Random, keys: range, count: int) -> None:
    """Perform random transactions on rows with these keys, which no other writer changes; some are rolled back."""
    import psycopg

    with psycopg.connect(server.dsn, autocommit=True) as db:
        for _ in range(count):
            with db.transaction(force_rollback=chance.random() < 0.1):
                for _ in range(chance.choice([1, 1, 2, 5, 30])):
                    k, n = chance.choice(keys), chance.randint(-999, 999)
                    statement = chance.choice([
                        "INSERT INTO t VALUES (%(k)s, repeat('x', abs(%(n)s)), 1) ON CONFLICT (k) DO UPDATE SET n = 0",
                        "UPDATE t SET v = %(n)s::text, n = n / 7 WHERE k = %(k)s",
                        "UPDATE t SET k = -k WHERE k = %(k)s AND NOT EXISTS (SELECT FROM t WHERE k = -%(k)s)",
                        "DELETE FROM t WHERE k IN (%(k)s, -%(k)s)",
                    ])  # fmt: skip
                    db.execute(statement, {"k": k, "n": n})


@contextmanager
def writers(server: Postgres, seed: int, count: int) -> Iterator[None]:
    """Two clients change the table inside the context."""
    threads = [
        threading.Thread(
            target=transact, args=(server, random.Random(seed + each), range(each * 40 + 1, each * 40 + 40), count)
        )
        for each in range(2)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(2, 12))])
def test_random_transactions_while_the_process_is_killed(
    server: Postgres, following: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Small batches cut large transactions; kills come at any moment, also before the snapshot is complete."""
    monkeypatch.setattr(feed, "BATCH_BYTES", 1500)
    monkeypatch.setattr(feed, "GATHER_S", 0.001)
    chance = random.Random(seed)
    server.query(T)
    server.query("INSERT INTO t SELECT i, 'begun', i FROM generate_series(1, 30) i")
    follower = following(PostgresChanges(server.dsn, ["t"]))
    for _ in range(2):  # the first kills come before or during the snapshot, the later ones after it
        with writers(server, seed, 40):
            for _ in range(5):
                time.sleep(chance.random() * 0.15)
                follower.kill()
                follower.start()
        follower.until_same(server, "t")
    assert {"insert", "update", "delete"} <= {record["operation"] for record in follower.records}


def test_a_server_that_is_killed_or_ends_connections_is_followed_further(
    server: Postgres, following: Callable[..., Follower]
) -> None:
    server.query(T)
    follower = following(PostgresChanges(server.dsn, ["t"]))
    for number in range(3):
        server.query("INSERT INTO t VALUES (%s, 'a', 1)", number)
        follower.until_same(server, "t")
        if number == 0:
            server.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'causal'")
        elif number == 1:
            with server.down():
                follower.until_says("cannot be reached")
    assert "it is tried again in" in follower.said


def test_a_snapshot_that_is_not_complete_is_never_used(
    server: Postgres, following: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed in the middle of the copy, once by its own death and once by that of its connection."""
    monkeypatch.setattr("operators.ingest.entry_log.SEGMENT_BYTES", 1 << 12)
    server.query(T)
    server.query("INSERT INTO t SELECT i, repeat('x', 1000), i FROM generate_series(1, 3000) i")
    server.query("CREATE VIEW slow AS SELECT 1")
    follower = following(PostgresChanges(server.dsn, ["t"]))
    segments = follower.directory / "ingest" / SOURCE / "segments"
    wait_for("a part is copied", lambda: segments.exists() and len(list(segments.iterdir())) > 3)
    follower.kill()
    assert follower.read() == []
    server.query("UPDATE t SET v = 'later'")
    follower.start()
    follower.until_same(server, "t")
    assert [record["operation"] for record in follower.records] == ["snapshot"] * 3000
    assert [slot for (slot,) in server.query("SELECT slot_name FROM pg_replication_slots")] == ["causal_test"]


def test_what_is_confirmed_is_in_the_log(server: Postgres, following: Callable[..., Follower]) -> None:
    """A job without room publishes and confirms nothing; the lag shows, and everything comes once there is room."""
    server.query(T)
    follower = following(PostgresChanges(server.dsn, ["t"]), bytes_max=1)
    follower.until_says("0 rows were copied")
    server.query("INSERT INTO t SELECT i, repeat('x', 1000), i FROM generate_series(1, 9000) i")
    follower.until_says("batch 1 waits")
    wait_for("the lag shows", lambda: (follower.lag or 0) > 0)
    [(confirmed,)] = server.query("SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots")
    assert follower.read() == []
    follower.kill()
    roomy = Follower(PostgresChanges(server.dsn, ["t"]), follower.directory).start()
    try:
        roomy.until_same(server, "t")
        wait_for("it has caught up", lambda: roomy.lag == 0)
        assert confirmed <= roomy.records[0]["lsn"]
    finally:
        roomy.kill()


VALUES: dict[str, tuple[str, Any]] = {
    "bool": ("true", True), "smallint": ("-5", -5), "bigint": ("9223372036854775807", 2**63 - 1), "real": ("0.1", 0.1),
    "float8": ("'NaN'", float("nan")), "numeric": ("1e30", Decimal(10**30)), "numeric(9,2)": ("1.5", Decimal("1.50")),
    "text": ("E'\\t\\\\N\\nü{'", "\t\\N\nü{"), "varchar(3)": ("''", ""), "char(3)": ("'a'", "a  "),
    "bytea": ("'\\x00ff'", b"\0\xff"), "date": ("'2024-02-29'", datetime(2024, 2, 29)),
    "timestamp": ("'2024-01-02 03:04:05.678'", datetime(2024, 1, 2, 3, 4, 5, 678_000)),
    "timestamptz": ("'2024-01-02 03:04:05+02'", datetime(2024, 1, 2, 1, 4, 5, tzinfo=UTC)),
    "uuid": ("'A0EEBC999C0B4EF8BB6D6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "json": ("'{\"b\": 1, \"a\": [null]}'", {"b": 1, "a": [None]}), "jsonb": ("'1.0'", 1.0),
    "int[]": ("'{{1,2},{3,NULL}}'", [[1, 2], [3, None]]),
    "text[]": ("ARRAY['NULL', NULL, 'a\"b\\', '']", ["NULL", None, 'a"b\\', ""]),
    "numeric[]": ("'{1.10}'", [Decimal("1.10")]), "inet": ("'::1'", "::1"), "interval": ("'1 day'", "1 day"),
    "time": ("'01:02'", "01:02:00"), "mood": ("'sad'", "sad"), "short": ("'abc'", "abc"),
    "tstzrange": ("'empty'", "empty"),
}  # fmt: skip
"""Type → a value in SQL, and as a record holds it."""


def test_values_of_all_types(server: Postgres, following: Callable[..., Follower]) -> None:
    server.query("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    server.query("CREATE DOMAIN short AS text CHECK (length(value) < 9)")
    columns = ", ".join(f'"{kind}" {kind}' for kind in VALUES)
    server.query(f"CREATE TABLE many(k int PRIMARY KEY, {columns}, doubled int GENERATED ALWAYS AS (k * 2) STORED)")
    names = ", ".join(f'"{kind}"' for kind in VALUES)
    row = ", ".join(value for value, _ in VALUES.values())
    server.query(f"INSERT INTO many(k, {names}) VALUES (1, {row})")
    server.query("ALTER ROLE test SET timezone = 'Asia/Tokyo'")
    server.query("ALTER ROLE test SET datestyle = 'German'")
    server.query("ALTER ROLE test SET bytea_output = 'escape'")
    follower = following(PostgresChanges(server.dsn, ["many"]))
    follower.until_says("1 rows were copied")
    server.query(f"INSERT INTO many(k, {names}) VALUES (2, {row})")
    server.query("INSERT INTO many(k) VALUES (3)")
    records = follower.until(lambda records: len(records) == 3)
    expected = {kind: value for kind, (_, value) in VALUES.items()}
    assert repr(records[0]["after"]) == repr({"k": 1, **expected})
    assert repr(records[1]["after"]) == repr({"k": 2, **expected})
    assert records[2]["after"] == {"k": 3, **dict.fromkeys(expected)}


def test_columns_come_and_go_and_large_values_are_not_sent(
    server: Postgres, following: Callable[..., Follower]
) -> None:
    server.query("CREATE TABLE docs(k int PRIMARY KEY, doc text, n int)")
    server.query("ALTER TABLE docs ALTER doc SET STORAGE EXTERNAL")
    follower = following(PostgresChanges(server.dsn, ["docs"], row_bytes_max=20_000))
    follower.until_says("0 rows were copied")
    for statement in (
        "INSERT INTO docs VALUES (1, repeat('x', 9000), 1)",
        "UPDATE docs SET n = 2",
        "ALTER TABLE docs REPLICA IDENTITY FULL",
        "UPDATE docs SET n = 3",
        "ALTER TABLE docs DROP n, ADD m bool DEFAULT true",
        "ALTER TABLE docs RENAME m TO is_new",
        "INSERT INTO docs VALUES (2, 'short', false)",
        "INSERT INTO docs VALUES (3, repeat('x', 20000), false)",
        "DELETE FROM docs WHERE k = 2",
        "BEGIN; DELETE FROM docs WHERE k = 1; TRUNCATE docs; COMMIT",
    ):
        server.query(statement)
    large = "x" * 9000
    first, unsent, whole, second, bad, gone, *rest = follower.until(lambda records: len(records) == 8)
    assert (first["after"], first["before"]) == ({"k": 1, "doc": large, "n": 1}, None)
    assert (unsent["after"], unsent["unchanged"], unsent["before"]) == ({"k": 1, "n": 2}, ["doc"], None)
    assert whole["before"] == {"k": 1, "doc": large, "n": 2} and whole["after"] == {"k": 1, "doc": large, "n": 3}
    assert "unchanged" not in whole and second["after"] == {"k": 2, "doc": "short", "is_new": False}
    assert type(bad) is Unreadable and "more than row_bytes_max (20,000)" in bad.why and "public.docs" in bad.where
    assert gone["before"] == {"k": 2, "doc": "short", "is_new": False} and gone["after"] is None
    assert [each["operation"] for each in rest] == ["delete", "truncate"]
    assert len({each["transaction"] for each in rest}) == 1 and [each["number"] for each in rest] == [0, 1]


@pytest.mark.campaign
def test_partitions_filters_and_an_existing_slot(server: Postgres, following: Callable[..., Follower]) -> None:
    server.query("CREATE TABLE parts(k int PRIMARY KEY, v text) PARTITION BY RANGE (k)")
    server.query("CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10)")
    server.query("CREATE TABLE high PARTITION OF parts FOR VALUES FROM (10) TO (20)")
    server.query("INSERT INTO parts VALUES (1, 'a'), (11, 'b')")
    follower = following(PostgresChanges(server.dsn, ["parts"]))
    follower.until_same(server, "parts")
    server.query("UPDATE parts SET k = k + 1, v = 'c'")
    server.query("UPDATE parts SET k = 15 WHERE k = 2")
    follower.until_same(server, "parts")
    server.query("CREATE TABLE wide(k int PRIMARY KEY, secret text, v text)")
    server.query("INSERT INTO wide VALUES (1, 's', 'a'), (-1, 's', 'a')")
    version = int(server.query("SHOW server_version_num")[0][0])
    if version < 150000:
        return
    server.query("CREATE PUBLICATION several FOR TABLE wide (k, v) WHERE (k > 0), parts")
    filtered = following(PostgresChanges(server.dsn, ["wide"], publication="several"), slot="causal_b")
    filtered.until_says("1 rows were copied")
    server.query("INSERT INTO wide VALUES (2, 's', 'b'), (-2, 's', 'b')")
    server.query("INSERT INTO parts VALUES (5, 'not read')")
    filtered.until(lambda records: rebuilt(records) == {"public.wide": {1: {"k": 1, "v": "a"}, 2: {"k": 2, "v": "b"}}})
    server.query("SELECT pg_create_logical_replication_slot('ours', 'pgoutput')")
    server.query("INSERT INTO wide VALUES (3, 's', 'c')")
    source = PostgresChanges(server.dsn, publication="several", slot="ours", snapshot=False)
    existing = following(source)
    server.query("INSERT INTO parts VALUES (6, 'read')")
    existing.until(lambda records: [record["after"]["k"] for record in records] == [3, 6])


def refused(server: Postgres, *arguments: Any, user: str = "test", **options: Any) -> str:
    """Return the line with which a job would not start."""
    dsn = server.dsn.replace("user=test", f"user={user} password=hunter2")
    with pytest.raises(PipelineError) as caught:
        PostgresChanges(dsn, *arguments, **options).check()
    line = str(caught.value)
    assert "hunter2" not in line and "\n" not in line
    return line


def test_mistakes_are_one_line_with_the_remedy(server: Postgres, shared_postgres: Postgres) -> None:
    assert "ALTER SYSTEM SET wal_level = logical" in refused(shared_postgres, ["t"])
    server.query(T)
    for statement in (
        "CREATE TABLE keyless(a int)", "CREATE UNLOGGED TABLE fleeting(a int PRIMARY KEY)",
        "CREATE VIEW seen AS SELECT 1",
        "CREATE ROLE poor LOGIN", "CREATE ROLE copier LOGIN REPLICATION",
        "CREATE PUBLICATION several FOR TABLE keyless",
    ):  # fmt: skip
        server.query(statement)
    assert "table nowhere does not exist" in refused(server, ["nowhere"])
    assert "no primary key" in refused(server, ["keyless"]) and "REPLICA IDENTITY FULL" in refused(server, ["keyless"])
    assert "ALTER TABLE fleeting SET LOGGED" in refused(server, ["fleeting"])
    assert "seen is not a table" in refused(server, ["seen"])
    assert "GRANT SELECT ON t" in refused(server, ["t"], user="poor")
    server.query("GRANT SELECT ON t TO poor, copier")
    assert "ALTER ROLE … REPLICATION" in refused(server, ["t"], user="poor")
    assert "publication nothing does not exist" in refused(server, ["t"], publication="nothing")
    assert 'ALTER PUBLICATION "several" ADD TABLE public.t' in refused(server, ["t"], publication="several")
    assert "does not exist" in refused(server, ["t"], user="nobody_here")
    PostgresChanges(server.dsn, ["keyless"], operations=["insert"]).check()


@pytest.mark.parametrize(
    "dsn", ["postgresql://u:hunter2 x@h/d", "postgresql://u:a@b:hunter2@h/d", "hunter2", "host=h x=hunter2"]
)
def test_an_unusable_dsn_shows_nothing_of_itself(dsn: str) -> None:
    with pytest.raises(PipelineError, match="dsn is not a connection string") as caught:
        PostgresChanges(dsn, ["t"]).check()
    assert "hunter2" not in str(caught.value)


@pytest.mark.campaign
def test_a_role_that_may_not_publish(server: Postgres, following: Callable[..., Follower]) -> None:
    server.query(T)
    server.query("CREATE ROLE copier LOGIN REPLICATION")
    server.query("GRANT SELECT ON t TO copier")
    line = following(PostgresChanges(server.dsn.replace("user=test", "user=copier"), ["t"])).ended()
    assert "permission denied" in line and line.startswith("PipelineError") and "grant the role" in line


def test_a_slot_that_is_gone_lost_or_read_by_others_ends_the_job(
    server: Postgres, following: Callable[..., Follower]
) -> None:
    server.query(T)
    follower = following(PostgresChanges(server.dsn, ["t"]))
    server.query("INSERT INTO t VALUES (1, 'a', 1)")
    follower.until_same(server, "t")
    follower.kill()
    server.query("INSERT INTO t VALUES (2, 'a', 1)")
    wait_for("it is free", lambda: not server.query("SELECT active FROM pg_replication_slots")[0][0])
    server.query("SELECT pg_replication_slot_advance('causal_test', pg_current_wal_lsn())")
    assert "another program has read from it" in follower.start().ended()
    server.query("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    server.query("SELECT pg_reload_conf()")
    lost = following(PostgresChanges(server.dsn, ["t"]), slot="causal_lost")
    lost.until_says("rows were copied")
    lost.until(lambda records: len(records) == 2)
    lost.kill()
    for _ in range(3):
        server.query("SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000)) FROM generate_series(1, 20)")
        server.query("SELECT pg_switch_wal()")
        server.query("CHECKPOINT")
    assert "has lost changes" in lost.start().ended()
    server.query("SELECT pg_drop_replication_slot('causal_lost')")
    assert "slot causal_lost does not exist" in lost.start().ended()
    other = following(PostgresChanges(server.dsn, ["t"]), slot="causal_other")
    other.until_says("slot causal_test, whose job is not running, keeps")
    other.until_says("SELECT pg_drop_replication_slot('causal_test')")


@pytest.mark.campaign
def test_a_slot_in_use_is_waited_for_and_then_named(
    server: Postgres, following: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "SLOT_WAIT_S", 0.5)
    server.query(T)
    first = following(PostgresChanges(server.dsn, ["t"]))
    first.until_says("rows were copied")
    wait_for("it streams", lambda: server.query("SELECT 1 FROM pg_replication_slots WHERE active"))
    second = following(PostgresChanges(server.dsn, ["t"]))
    line = second.ended()
    assert "slot causal_test is used by process" in line and "pg_terminate_backend" in line
    server.query("INSERT INTO t VALUES (1, 'a', 1)")
    first.until_same(server, "t")


@pytest.mark.campaign
def test_more_than_the_bound_is_not_kept(
    server: Postgres, following: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job has no room; the slot is dropped at the bound, so that the server's disk does not fill."""
    monkeypatch.setattr(feed, "LOOK_S", 0.1)
    server.query(T)
    follower = following(PostgresChanges(server.dsn, ["t"]), bytes_max=1, wal_bytes_max=8 << 20)
    follower.until_says("rows were copied")
    for begin in range(0, 40_000, 4_000):
        server.query(
            "INSERT INTO t SELECT i, repeat('x', 500), i FROM generate_series(%s::int, %s) i", begin, begin + 3_999
        )
    line = follower.ended()
    assert "more than wal_bytes_max (8,388,608), so the slot was dropped" in line
    assert server.query("SELECT count(*) FROM pg_replication_slots") == [(0,)]


def test_a_quiet_table_of_a_busy_server_does_not_hold_its_log(
    server: Postgres, following: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "CONFIRM_S", 0.1)
    server.query(T)
    server.query("CREATE TABLE busy(a text)")
    follower = following(PostgresChanges(server.dsn, ["t"]))
    follower.until_says("rows were copied")
    server.query("INSERT INTO busy SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
    [(end,)] = server.query("SELECT pg_current_wal_lsn() - '0/0'")
    confirmed = "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots"
    wait_for("it is confirmed", lambda: server.query(confirmed)[0][0] >= end)
    follower.kill()
    server.query("INSERT INTO t VALUES (1, 'a', 1)")
    follower.start()
    follower.until_same(server, "t")


@pytest.mark.campaign
def test_a_stopped_server_is_noticed(
    server: Postgres, following: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "SILENCE_S", 0.5)
    monkeypatch.setattr(feed, "CONFIRM_S", 0.1)
    monkeypatch.setattr(feed, "LOOK_S", 60.0)
    server.query(T)
    follower = following(PostgresChanges(server.dsn, ["t"]))
    follower.until_says("rows were copied")
    server.query("INSERT INTO t VALUES (1, 'a', 1)")
    follower.until_same(server, "t")
    with server.away():
        follower.until_says("has not answered for 0.5 s")
    server.query("INSERT INTO t VALUES (2, 'a', 1)")
    follower.until_same(server, "t")


def test_a_publication_may_have_tables_with_dots_in_their_names(
    server: Postgres, following: Callable[..., Follower]
) -> None:
    server.query('CREATE TABLE "do.t"("K ey" int PRIMARY KEY)')
    server.query('INSERT INTO "do.t" VALUES (1)')
    server.query("CREATE PUBLICATION every FOR ALL TABLES")
    follower = following(PostgresChanges(server.dsn, publication="every"))
    follower.until_says("1 rows were copied")
    server.query('INSERT INTO "do.t" VALUES (2)')
    records = follower.until(lambda records: len(records) == 2)
    assert [(record["table"], record["after"]) for record in records] == [
        ("public.do.t", {"K ey": 1}),
        ("public.do.t", {"K ey": 2}),
    ]


def test_a_server_that_is_unavailable_at_the_start_is_waited_for_in_one_line(
    server: Postgres, capfd: pytest.CaptureFixture[str]
) -> None:
    server.query(T)
    source = PostgresChanges(server.dsn, ["t"])
    source.check()
    assert capfd.readouterr().err == ""
    server.kill()
    source.check()
    (line,) = capfd.readouterr().err.splitlines()
    assert "PostgresChanges: PostgreSQL postgres at" in line and line.endswith("; the job waits for it")


def test_names_of_slots() -> None:
    name = name_of("Jöb 1", "orders", "run")
    assert name.startswith("causal_j_b_1_orders_") and name != name_of("Jöb 1", "orders", "other run")
    assert len(name_of("j" * 99, "s" * 99, "run")) == 63
