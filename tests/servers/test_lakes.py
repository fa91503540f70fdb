"""Tables in S3: the promises that need no fork, two tasks, secrets, and what is said of wrong addresses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (extra delta)")
pytest.importorskip("pyiceberg", reason="pyiceberg is not installed (extra iceberg)")

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from benchmarks.servers.s3 import BUCKET, S3
from causal.errors import PipelineError, Unavailable
from operators.outputs import open_output
from operators.sinks import DeltaSink, IcebergSink
from operators.sinks.conformance import Subject, bundle_at, bundles, fill, record_at, returning, successions, withdrawal
from operators.sinks.lake.lake_sink import LakeSink
from tests.members import campaign, members
from tests.unit.sinks.lake_scene import rows_of, table_of

CHECKS = (
    *bundles.CHECKS,
    successions.lets_no_older_run_come_back,
    *(check for check in withdrawal.CHECKS + returning.CHECKS if "killed" not in (check.__doc__ or "")),
)
ALWAYS = (bundles.fences_zombies,)
SECRET = "s3cret-of-this-test"
Make = Callable[..., LakeSink]


def delta(server: S3, directory: Path, **options: Any) -> DeltaSink:
    return DeltaSink(f"s3://{BUCKET}/{directory.name}/table", **options)


def iceberg(server: S3, directory: Path, **options: Any) -> IcebergSink:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": f"s3://{BUCKET}/{directory.name}",
        "s3.endpoint": server.endpoint,
        "s3.access-key-id": "test",
        "s3.secret-access-key": SECRET,
        "s3.region": "us-east-1",
    }
    load_catalog("causal", **properties).create_namespace_if_not_exists("shop")
    return IcebergSink("shop.out", properties, **options)


@pytest.fixture(params=[delta, campaign(iceberg)])
def make(request: pytest.FixtureRequest, s3_here: S3, tmp_path: Path) -> Make:
    return lambda **options: request.param(s3_here, tmp_path, **options)


@pytest.mark.parametrize("check", members(CHECKS, *ALWAYS), ids=lambda check: check.__name__)
def test_it_conforms(check: Callable[[Subject], None], make: Make) -> None:
    sink = make(publish_s=1e-9)
    assert sink.everywhere
    check(Subject(sink, lambda task: rows_of(sink, task)))


def test_two_tasks_write_one_table(make: Make) -> None:
    sink = make(file_bytes=300)
    subject = Subject(sink, lambda task: rows_of(sink, task))
    opened = {task: subject.opened(task=task) for task in ("out/0", "out/1")}
    for rows in range(10, 60, 10):
        for task, (store, state) in opened.items():
            opened[task] = store, fill(subject, store, state, rows, task=task)
    for store, _ in opened.values():
        store.close()
    expected = [record_at(task, n) for task in opened for n in range(50)]
    assert table_of(sink).sort_by([("task", "ascending"), ("n", "ascending")]).to_pylist() == expected
    assert [row for task in opened for row in rows_of(sink, task)] == expected


def test_an_output_is_opened_by_its_url(s3_here: S3, tmp_path: Path) -> None:
    sink = delta(s3_here, tmp_path)
    subject = Subject(sink, lambda task: rows_of(sink, task))
    store, state = subject.opened()
    store.write(bundle_at(subject, state, 3))
    output = open_output(sink.url)
    output.look()
    assert output.ends(False) == {"out/0": 3}
    store.close()
    assert DeltaTable(sink.url).to_pyarrow_table().num_rows == 3


def test_options_of_the_sink_precede_the_environment_and_are_shown_nowhere(
    s3_here: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:9")
    options = {"AWS_ENDPOINT": s3_here.endpoint, "AWS_SECRET_ACCESS_KEY": SECRET}
    sink = delta(s3_here, tmp_path, options=options)
    with caplog.at_level(logging.DEBUG):
        sink.check()
        subject = Subject(sink, lambda task: rows_of(sink, task))
        store, state = subject.opened()
        store.write(bundle_at(subject, state, 3))
        store.close()
    assert len(rows_of(sink)) == 3
    assert sink.newest_run() == "run-1"
    assert SECRET not in caplog.text + repr(sink.settings)


def test_wrong_addresses_and_credentials_are_one_line_without_secrets(s3_here: S3, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"^DeltaSink: store s3://misspelt/table: .*check the URL") as refusal:
        DeltaSink("s3://misspelt/table", options={"AWS_SECRET_ACCESS_KEY": SECRET}).check()
    assert SECRET not in str(refusal.value) and "\n" not in str(refusal.value)
    sink = iceberg(s3_here, tmp_path)
    sink._catalog = {**sink._catalog, "s3.endpoint": "http://127.0.0.1:9", "s3.connect-timeout": "1"}  # type: ignore[dict-item]
    with pytest.raises((Unavailable, PipelineError)) as missing:
        sink.open_store("out/0", Path()).open("out/0", "run-1", 1)
    assert SECRET not in str(missing.value) and "\n" not in str(missing.value)
