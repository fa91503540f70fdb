"""`DeltaSink` and `IcebergSink`: the promises of the kit, one commit per publication, columns, other writers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (extra delta)")
pytest.importorskip("pyiceberg", reason="pyiceberg is not installed (extra iceberg)")

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake import Schema as DeltaSchema

from causal.errors import CorruptData, PipelineError, RowRefused, Unavailable
from causal.ports import Bundle, SinkStore, StoreState
from causal.records.vectors import Vectors
from operators.outputs import open_output
from operators.sinks import conformance
from operators.sinks.conformance import (
    Subject,
    after,
    bundle_at,
    bundles,
    crashes,
    fill,
    outages,
    returning,
    successions,
    value_checks,
    withdrawal,
    zombies,
)
from operators.sinks.lake.delta_sink import DeltaSink
from operators.sinks.lake.iceberg_sink import IcebergSink
from operators.sinks.lake.lake_reading import read
from operators.sinks.lake.lake_sink import LakeSink
from operators.sinks.lake.lake_table import Conflict
from tests.members import members
from tests.unit.sinks.lake_scene import AT_ONCE, FORMATS, catalog, remote_delta, rows_of, subject_of, table_of

Make = Callable[..., LakeSink]
ALL = conformance.CHECKS + withdrawal.CHECKS + returning.CHECKS
FORKS = (
    crashes.dies_at_every_step_of_a_write,
    crashes.survives_kills,
    crashes.stops_zombies_that_wake_up,
    zombies.fences_zombies_at_every_step_of_a_write,
    successions.dies_at_every_step_of_a_replacement,
    withdrawal.withdraws_all_or_nothing,
    returning.dies_at_every_step_of_a_return,
)
"""The checks that fork, which a process that has used Delta's client cannot."""
ICEBERG = tuple(check for check in ALL if check is not crashes.stops_zombies_that_wake_up)
LONG = (value_checks.keeps_every_value_or_refuses_it, outages.waits_for_an_unavailable_store)


@pytest.fixture(params=FORMATS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return a function that makes a sink for one table."""
    return lambda **options: FORMATS[request.param](tmp_path, **options)


@pytest.mark.parametrize("check", [each for each in ALL if each not in FORKS], ids=lambda check: check.__name__)
def test_a_delta_table_conforms(check: Callable[[Subject], None], tmp_path: Path) -> None:
    check(subject_of(FORMATS["delta"](tmp_path, **AT_ONCE)))


@pytest.mark.parametrize(
    "check",
    members(ICEBERG, bundles.fences_zombies, crashes.survives_kills, successions.lets_no_older_run_come_back),
    ids=lambda check: check.__name__,
)
def test_an_iceberg_table_conforms(check: Callable[[Subject], None], tmp_path: Path) -> None:
    check(subject_of(FORMATS["iceberg"](tmp_path, **AT_ONCE)))


@pytest.mark.campaign
def test_zombies_of_an_iceberg_table_that_wake_up_are_stopped(tmp_path: Path) -> None:
    crashes.stops_zombies_that_wake_up(subject_of(FORMATS["iceberg"](tmp_path, **AT_ONCE)), stops=3)


@pytest.mark.parametrize("check", members(FORKS, crashes.survives_kills), ids=lambda check: check.__name__)
def test_a_delta_table_whose_writers_die_conforms(check: Callable[[Subject], None], tmp_path: Path) -> None:
    with remote_delta(tmp_path, **AT_ONCE) as sink:
        check(subject_of(sink))


def opened(sink: LakeSink, run: str = "run-1", task: str = "out/0", incarnation: int = 1) -> tuple[SinkStore, Any]:
    store = sink.open_store(task, Path())
    return store, store.open(task, run, incarnation)


def written(sink: LakeSink, *pieces: Any, run: str = "run-1", task: str = "out/0") -> None:
    """Write each piece as a bundle, and close the store."""
    store, state = opened(sink, run, task)
    for piece in pieces:
        encode = sink.encode_vectors if isinstance(piece, Vectors) else sink.encode
        bundle = Bundle(state.next, len(piece), encode(piece), state.digest + 1, 0, 1, ())
        store.write(bundle)
        state = after(state, bundle)
    store.close()


def versions(sink: LakeSink) -> int:
    """Return the number of commits of rows."""
    if isinstance(sink, DeltaSink):
        return sum(entry["operation"] == "WRITE" for entry in DeltaTable(sink.place).history())
    table = sink.table()
    table.open(False)
    table.look()
    snapshots = table._table.snapshots()  # type: ignore[attr-defined]
    return sum("added-data-files" in each.summary.additional_properties for each in snapshots)


def refusal(act: Callable[[], object], kind: type[Exception] = PipelineError) -> str:
    with pytest.raises(kind) as caught:
        act()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_rows_are_one_commit_per_publication_and_are_seen_by_us_immediately(make: Make) -> None:
    subject = subject_of(make(busy_ms=20))
    store, state = subject.opened()
    state = fill(subject, store, state, 30)
    subject.expect_rows(30, "rows are visible immediately")
    assert table_of(subject.sink).num_rows == 0  # type: ignore[arg-type]
    store.close()
    assert table_of(subject.sink).num_rows == 30 and versions(subject.sink) == 1  # type: ignore[arg-type]
    subject.expect_rows(30, "rows stay visible")


def test_files_are_as_large_as_wanted(make: Make) -> None:
    sink = make(file_bytes=400, busy_ms=20)
    subject = subject_of(sink)
    store, state = subject.opened()
    fill(subject, store, state, 70)
    assert 2 < versions(sink) < 9
    assert table_of(sink).num_rows < 70
    store.close()
    assert table_of(sink).sort_by("n").to_pylist() == [conformance.record_at("out/0", n) for n in range(70)]


def test_duckdb_reads_what_the_library_reads(make: Make) -> None:
    sink = make()
    written(sink, [{"k": n % 3, "n": n} for n in range(50)])
    rows = table_of(sink)  # noqa: F841  (DuckDB finds it by its name)
    assert duckdb.sql("SELECT k, count(*), sum(n) FROM rows GROUP BY k ORDER BY k").fetchall() == [
        (0, 17, 408),
        (1, 17, 425),
        (2, 16, 392),
    ]
    assert read(sink.output()).to_pylist() == [{"k": n % 3, "n": n} for n in range(50)]


def test_tasks_commit_to_one_table_at_the_same_time(make: Make) -> None:
    from concurrent.futures import ThreadPoolExecutor

    sink = make(publish_s=1e-9, busy_ms=5000)

    def process(number: int) -> None:
        task = f"out/{number}"
        subject = subject_of(sink)
        for incarnation in (1, 2):
            store, state = opened(sink, task=task, incarnation=incarnation)
            while state.next < 20 * incarnation:
                bundle = bundle_at(subject, state, 5, incarnation, task)
                for attempt in range(100):
                    try:
                        store.write(bundle)
                        break
                    except Unavailable:
                        assert attempt < 99
                state = after(state, bundle)
            store.close()

    with ThreadPoolExecutor(4) as processes:
        list(processes.map(process, range(4)))
    expected = [conformance.record_at(f"out/{task}", n) for task in range(4) for n in range(40)]
    assert table_of(sink).sort_by([("task", "ascending"), ("n", "ascending")]).to_pylist() == expected
    assert read(sink.output()).to_pylist() == expected


class Dying(BaseException):
    """A process dies."""


@pytest.mark.parametrize("after_commit", [False, True])
def test_a_commit_whose_answer_is_lost_is_not_repeated(
    make: Make, after_commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = make(**AT_ONCE)
    written(sink, [{"n": 0}])
    table = type(sink.table())
    add, commits = table.add, []

    def dies(self: Any, *arguments: Any) -> None:
        if after_commit:
            add(self, *arguments)
        commits.append(arguments)
        raise Dying

    store, state = opened(sink, incarnation=2)
    store.write(Bundle(1, 1, sink.encode([{"n": 1}]), 2, 0, 2, ()))
    store.write(Bundle(2, 1, sink.encode([{"n": 2}]), 3, 0, 2, ()))
    monkeypatch.setattr(table, "add", dies)
    with pytest.raises(Dying):
        store.write(Bundle(3, 1, sink.encode([{"n": 3}]), 4, 0, 2, ()))
    monkeypatch.setattr(table, "add", add)
    assert table_of(sink).num_rows == 1 + 2 * after_commit and len(commits) == 1
    store, state = opened(sink, incarnation=3)
    assert state.next == 3 and sorted(table_of(sink)["n"].to_pylist()) == [0, 1, 2]
    store.close()
    assert versions(sink) == 2
    assert [row["n"] for row in rows_of(sink)] == [0, 1, 2]


def test_a_zombie_with_an_old_version_commits_nothing(make: Make) -> None:
    sink = make(**AT_ONCE)
    written(sink, [{"n": 0}])
    zombie = sink.table()
    zombie.open(False)
    zombie.look()
    store, state = opened(sink, incarnation=2)
    store.write(Bundle(1, 1, sink.encode([{"n": 1}]), 1, 0, 2, ()))
    store.close()
    stolen = zombie.names()[0]
    with pytest.raises(Conflict):
        zombie.add("run-1", "out/0", 2, stolen, 100, 1)
    zombie.look()
    written(replaced(sink), [{"n": 7}], run="run-2")
    with pytest.raises(Conflict):
        zombie.add("run-1", "out/1", 2, stolen, 100, 1)
    assert table_of(sink)["n"].to_pylist() == [7]


def replaced(sink: LakeSink, **options: Any) -> LakeSink:
    """Return the same sink with other options."""
    from copy import copy

    other = copy(sink)
    vars(other).update({"existing": "replace", **options})
    return other


def test_a_newer_run_replaces_rows_and_columns_and_the_versions_before_stay(make: Make) -> None:
    sink = make()
    written(sink, [{"n": 0, "x": "a"}])
    assert "rows of another run" in refusal(lambda: opened(sink, run="run-2"))
    store, _ = opened(replaced(sink), run="run-2")
    assert table_of(sink).num_rows == 0 and rows_of(sink) == []
    store.close()
    written(replaced(sink), [{"n": "text"}], run="run-2")
    assert table_of(sink).to_pylist() == [{"n": "text"}] == rows_of(sink)
    if isinstance(sink, DeltaSink):
        assert pa.table(DeltaTable(sink.place, version=1).to_pyarrow_table()).to_pylist() == [{"n": 0, "x": "a"}]


def test_types_are_those_of_values_and_are_read_back(make: Make) -> None:
    row = {
        "i": 1 << 40,
        "f": 0.1,
        "t": datetime(2026, 11, 27, 12, 0, 0, 1, UTC),
        "local": datetime(2026, 11, 27, 12),
        "d": Decimal("1.25"),
        "b": b"\x00\xff",
        "s": {"x": [1, 2], "y": None},
        "l": [{"z": 1}, {"z": 2}],
        "none": None,
    }
    sink = make()
    written(sink, [row, row])
    [one, _] = table_of(sink).to_pylist()
    assert {**one, "s": {**one["s"], "y": None}} == row
    assert [{**each, "s": {**each["s"], "y": None}} for each in rows_of(sink)] == [row, row]


def test_vectors_fit_in_any_width_of_their_types(make: Make) -> None:
    sink = make()
    batch = pa.record_batch(
        {
            "text": pa.array(["a", None], pa.large_string()),
            "small": pa.array([1, 2], pa.int8()),
            "time": pa.array([1_000_000, 2_000_000], pa.timestamp("ns")),
        }
    )
    written(sink, Vectors(batch), Vectors(batch))
    assert [row["text"] for row in table_of(sink).to_pylist()] == ["a", None, "a", None]
    odd = Vectors(pa.record_batch({"text": ["b"], "small": [3], "time": pa.array([1], pa.timestamp("ns"))}))
    with pytest.raises(RowRefused):
        written(sink, odd, run="run-1")


def test_a_type_that_no_table_has_is_one_line(make: Make) -> None:
    sink = make(schema={"span": pa.duration("us")})
    assert "cannot have these columns" in refusal(lambda: opened(sink))


def test_a_row_that_does_not_fit_is_refused_and_its_position_stays_empty(make: Make) -> None:
    sink = make(**AT_ONCE)
    store, state = opened(sink)
    store.write(Bundle(0, 1, sink.encode([{"n": 0}]), 1, 0, 1, ()))
    bundle = Bundle(1, 3, sink.encode([{"n": 1}, {"n": "x"}, {"n": 3, "new": 1}]), 2, 0, 1, ())
    with pytest.raises(RowRefused) as caught:
        store.write(bundle)
    assert [position for position, _ in caught.value.rows] == [2, 3]
    assert "'new' is not in the schema" in caught.value.rows[1][1]
    store.write(replace(bundle, refused=((2, "a"), (3, "b"))))
    store.write(Bundle(4, 1, sink.encode([{"n": 4}]), 3, 0, 1, ()))
    store.close()
    assert [row["n"] for row in rows_of(sink)] == [0, 1, 4]
    assert sorted(table_of(sink)["n"].to_pylist()) == [0, 1, 4]
    output = sink.output()
    output.look()
    assert [place for places, _ in output.rows("out/0", 0, 5) for place in places.to_pylist()] == [0, 1, 4]


def test_new_columns_are_added_and_earlier_rows_have_no_values_there(make: Make) -> None:
    sink = make(new_columns="add", **AT_ONCE)
    written(sink, [{"n": 0}], [{"n": 1, "x": 0.5}, {"n": 2, "x": None, "y": {"z": 1}}])
    expected = [{"n": 0, "x": None, "y": None}, {"n": 1, "x": 0.5, "y": None}, {"n": 2, "x": None, "y": {"z": 1}}]
    assert rows_of(sink) == expected
    assert table_of(sink).select(["n", "x", "y"]).sort_by("n").to_pylist() == expected
    with pytest.raises(RowRefused, match="'x'"):
        written(sink, [{"n": 3, "x": "text"}])


def test_tasks_add_columns_at_the_same_time(make: Make) -> None:
    sink = make(new_columns="add", busy_ms=20)
    one, state = opened(sink, task="out/0")
    two, _ = opened(sink, task="out/1")
    for number, store in enumerate((one, two)):
        store.write(Bundle(0, 1, sink.encode([{"n": number}]), 1, 0, 1, ()))
    one.write(Bundle(1, 1, sink.encode([{"n": 2, "x": 1}]), 2, 0, 1, ()))
    two.write(Bundle(1, 2, sink.encode([{"n": 3, "x": 2}, {"n": 4, "y": 3}]), 2, 0, 1, ()))
    one.close()
    two.close()
    assert table_of(sink).select(["n", "x", "y"]).sort_by("n").to_pylist() == [
        {"n": 0, "x": None, "y": None},
        {"n": 1, "x": None, "y": None},
        {"n": 2, "x": 1, "y": None},
        {"n": 3, "x": 2, "y": None},
        {"n": 4, "x": None, "y": 3},
    ]


def own_table(sink: LakeSink, schema: pa.Schema) -> None:
    """Create the table as a person does."""
    if isinstance(sink, DeltaSink):
        DeltaTable.create(sink.place, DeltaSchema.from_arrow(schema))
    else:
        catalog(Path(sink._catalog["warehouse"].removeprefix("file://")).parent).create_table(  # type: ignore[attr-defined]
            "shop.out", schema
        )


def inserted(sink: LakeSink, rows: pa.Table) -> None:
    """Add rows as a person does."""
    if isinstance(sink, DeltaSink):
        write_deltalake(sink.place, rows, mode="append")
    else:
        table = sink.table()
        table.open(False)
        table.look()
        table._table.append(rows)  # type: ignore[attr-defined]


OWN = pa.schema([("x", pa.string()), ("n", pa.int32()), ("more", pa.float64())])


def test_an_empty_table_of_a_person_keeps_its_columns_in_every_run(make: Make) -> None:
    sink = make()
    own_table(sink, OWN)
    written(sink, [{"n": 1, "x": "a"}])
    with pytest.raises(RowRefused):
        written(sink, [{"n": 1 << 40, "x": "a"}])
    written(replaced(sink), [{"n": 2, "x": "b"}], run="run-2")
    assert table_of(sink).to_pylist() == [{"x": "b", "n": 2, "more": None}]
    assert table_of(sink).schema.field("n").type == pa.int32()


def test_tuples_go_to_the_columns_that_the_sink_names(make: Make) -> None:
    sink = make(columns=["n", "x"])
    own_table(sink, OWN)
    written(sink, [(1, "a"), (2, "b")])
    assert table_of(sink).to_pylist() == [{"x": "a", "n": 1, "more": None}, {"x": "b", "n": 2, "more": None}]
    assert "has no column 'z', which" in refusal(lambda: written(replaced(sink, columns=["z"]), [(3,)]))


def test_a_table_with_rows_of_a_person_is_refused(make: Make) -> None:
    sink = make(existing="replace")
    own_table(sink, OWN)
    inserted(sink, pa.Table.from_pylist([{"x": "mine", "n": 1, "more": None}], OWN))
    assert "rows that no run wrote; give the sink its own table" in refusal(lambda: opened(sink))
    assert table_of(sink).num_rows == 1


def test_a_schema_of_the_sink_is_that_of_the_table_or_is_refused(make: Make) -> None:
    sink = make(schema={"n": "int64", "x": "string"})
    written(sink, [{"n": 1}], [(2, "b")])
    assert table_of(sink).sort_by("n").to_pylist() == [{"n": 1, "x": None}, {"n": 2, "x": "b"}]
    other = replaced(sink, schema=pa.schema([("n", pa.string())]))
    assert "schema has 'n' as string where the table has 'n' as int64" in refusal(lambda: opened(other))


def test_others_may_add_and_remove_rows_while_the_job_writes(make: Make) -> None:
    sink = make(**AT_ONCE)
    store, state = opened(sink)
    for n in range(4):
        store.write(Bundle(n, 1, sink.encode([{"n": n}]), n + 1, 0, 1, ()))
        if n == 1:
            inserted(sink, pa.table({"n": [100]}))
    store.close()
    assert sorted(table_of(sink)["n"].to_pylist()) == [0, 1, 2, 3, 100]
    assert [row["n"] for row in rows_of(sink)] == [0, 1, 2, 3]


def test_a_table_that_was_compacted_is_written_on_but_only_its_library_reads_it(tmp_path: Path) -> None:
    sink = FORMATS["delta"](tmp_path, **AT_ONCE)
    written(sink, [{"n": 0}], [{"n": 1}], [{"n": 2}])
    DeltaTable(sink.place).optimize.compact()
    store, state = opened(sink, incarnation=2)
    assert state.next == 3
    store.write(Bundle(3, 1, sink.encode([{"n": 3}]), 9, 0, 2, ()))
    store.close()
    assert sorted(table_of(sink)["n"].to_pylist()) == [0, 1, 2, 3]
    output = sink.output()
    output.look()
    assert "has rewritten rows of out/0 from 0 on" in refusal(lambda: list(output.rows("out/0", 0, 4)))
    assert [batch.to_pylist() for _, batch in output.rows("out/0", 3, 4)] == [[{"n": 3}]]


def test_columns_that_a_person_removed_end_the_job_with_one_line(tmp_path: Path) -> None:
    sink = FORMATS["iceberg"](tmp_path)
    store, state = opened(sink)
    store.write(Bundle(0, 1, sink.encode([{"n": 0, "x": 1}]), 1, 0, 1, ()))
    table = sink.table()
    table.open(False)
    table.look()
    with table._table.update_schema() as update:  # type: ignore[attr-defined]
        update.delete_column("x")
    store, state = opened(sink, incarnation=2)
    assert "rows already accepted do not fit" in refusal(lambda: store.publish())  # type: ignore[attr-defined]


def test_a_table_that_was_restored_to_an_earlier_state_is_damaged(tmp_path: Path) -> None:
    from shutil import copytree, rmtree

    sink = FORMATS["delta"](tmp_path, **AT_ONCE)
    written(sink, [{"n": 0}])
    copytree(f"{sink.place}/_delta_log", tmp_path / "log")
    written(sink, [{"n": 1}])
    rmtree(f"{sink.place}/_delta_log")
    copytree(tmp_path / "log", f"{sink.place}/_delta_log")
    assert "restore the table" in refusal(lambda: opened(sink, incarnation=2), CorruptData)


def test_rows_of_a_killed_job_are_published_by_hand(make: Make) -> None:
    sink = make()
    store, state = opened(sink)
    store.write(Bundle(0, 2, sink.encode([{"n": 0}, {"n": 1}]), 1, 0, 1, ()))
    assert table_of(sink).num_rows == 0 if isinstance(sink, IcebergSink) else True
    sink.publish()
    assert table_of(sink)["n"].to_pylist() == [0, 1]
    sink.publish()
    assert versions(sink) == 1


def test_a_job_that_expects_its_table_does_not_create_another(make: Make) -> None:
    store: Any = make().open_store("out/0", Path())
    store.expect(counted=True)
    refusal(lambda: store.open("out/0", "run-1", 2), Unavailable)


def test_an_output_is_opened_by_its_path_or_by_its_sink(make: Make) -> None:
    sink = make()
    written(sink, [{"n": 0}])
    if isinstance(sink, DeltaSink):
        output = open_output(sink.place)
        output.look()
        assert output.ends(False) == {"out/0": 1}
        return
    table = sink.table()
    table.open(False)
    line = refusal(lambda: open_output(table.location.removeprefix("file://")))
    assert line.endswith("is an Iceberg table; use open_output(IcebergSink(…)), which names its catalog")


@pytest.mark.parametrize(
    ("kind", "arguments", "part"),
    [
        (DeltaSink, {"url": "gs://x/y"}, "use s3://BUCKET/PREFIX or file:///DIRECTORY"),
        (DeltaSink, {"url": "t", "options": {"AWS_REGION": 1}}, "options are not a dict from text to text"),
        (DeltaSink, {"url": "t", "new_columns": "merge"}, "use refuse or add"),
        (DeltaSink, {"url": "t", "compression": "lz4"}, "use snappy, zstd, gzip or none"),
        (DeltaSink, {"url": "t", "columns": ["a"], "new_columns": "add"}, "tuples cannot have new columns"),
        (DeltaSink, {"url": "t", "existing": "append"}, "use refuse or replace"),
        (IcebergSink, {"table": "orders", "catalog": "x"}, "use a namespace and a name, such as 'shop.orders'"),
        (IcebergSink, {"table": "shop.orders", "catalog": ""}, "catalog is neither a name nor a dict"),
        (IcebergSink, {"table": "shop.orders", "catalog": {"port": 5}}, "catalog is neither a name nor a dict"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(kind: Any, arguments: dict[str, Any], part: str) -> None:
    assert part in refusal(lambda: kind(**arguments))


def test_a_catalog_that_does_not_answer_and_a_missing_namespace_are_one_line(tmp_path: Path) -> None:
    nowhere = {"type": "sql", "uri": "sqlite:////nowhere/catalog.db", "warehouse": f"file://{tmp_path}"}
    assert "check the catalog" in refusal(IcebergSink("shop.out", nowhere).check)
    catalog(tmp_path).create_namespace("shop")
    sink = FORMATS["iceberg"](tmp_path)
    sink.check()
    sink._identifier = "shoop.out"  # type: ignore[attr-defined]
    assert "has no namespace 'shoop'; create it, or correct the name" in refusal(sink.check)


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    assert "does not exist; create it first" in refusal(DeltaSink(tmp_path / "a" / "b").check)
    (tmp_path / "file").touch()
    assert "is not a directory" in refusal(DeltaSink(tmp_path / "file").check)


def test_secrets_are_in_no_message_and_in_no_setting_that_is_shown(tmp_path: Path) -> None:
    secret = "tops3cret"
    options = {"AWS_SECRET_ACCESS_KEY": secret, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true"}
    sink = DeltaSink("s3://bucket/table", options={**options, "AWS_REGION": "x", "AWS_ACCESS_KEY_ID": "id"})
    assert secret not in repr(sink.settings) + str(vars(sink.settings) if hasattr(sink.settings, "__dict__") else "")
    nowhere = {"type": "sql", "uri": f"postgresql+nodriver://me:{secret}@h/db", "warehouse": f"file://{tmp_path}"}
    assert secret not in refusal(IcebergSink("shop.out", nowhere).check)


def test_the_state_of_an_empty_store_needs_no_table(tmp_path: Path) -> None:
    sink = FORMATS["delta"](tmp_path)
    assert sink.newest_run() is None
    store, state = opened(sink)
    assert state == StoreState(0, 0, ())
    store.close()
    assert sink.newest_run() == "run-1" and not DeltaTable.is_deltatable(sink.place)
