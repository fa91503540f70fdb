"""Latency counts from the time at which an element was due: a known delay is in it, and no wrong zero point passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness import zero_point
from benchmarks.harness.runs import RunFailed
from benchmarks.harness.watched import watched
from benchmarks.jobs import latency_index, stamped_ledger
from benchmarks.jobs.stamped_sink import Stamp, read_stamps
from benchmarks.peers.programs import index_documents
from benchmarks.recovery.row_latency import latencies
from operators.source import SourceContext
from tests.unit.benchmarks import delayed_ledger
from tests.unit.benchmarks.delayed_ledger import COUNT, OPENS_S, RATE, SEEN_BY_SOURCE, TAKES_S

ENDS_WITHIN_S = 60.0
NS = 1_000_000_000


def test_the_wait_for_a_source_to_open_and_the_time_of_an_operator_are_in_the_latency() -> None:
    with watched(Path(delayed_ledger.__file__), {}, ()) as job:
        job.report(ENDS_WITHIN_S)
        began_ns = zero_point.began_ns(job.directory)
        assert began_ns == int((job.directory / SEEN_BY_SOURCE).read_text()), "the source counts from the same moment"
        first_read_ns = job.view()["first_record_ns"]
        rows, stamps = stamped_ledger.read_rows(job.out), read_stamps(job.out)
    interval_ns = stamped_ledger.PARTITIONS / RATE * NS
    series = latencies(rows, stamps, 0, began_ns, interval_ns)
    assert len(series.took_ns) == stamped_ledger.PARTITIONS * COUNT
    assert min(series.took_ns) >= TAKES_S * NS
    waited = [took for at, took in zip(series.origins_ns, series.took_ns, strict=True) if at == began_ns]
    assert len(waited) == stamped_ledger.PARTITIONS and min(waited) >= (OPENS_S + TAKES_S) * NS
    assert first_read_ns >= began_ns + OPENS_S * NS, "the time of the first read is no zero point"


def test_a_row_that_is_seen_before_it_is_due_shows_a_wrong_zero_point() -> None:
    rows = [(0, 7, 1, 0, 0), (0, 7, 2, 0, 1)]
    with pytest.raises(RunFailed, match="before it was due: the zero point is wrong"):
        latencies(rows, [Stamp(2 * NS, 0, 1), Stamp(3 * NS, 1, 1)], 0, NS, 3.0 * NS)


def test_a_job_that_has_not_begun_has_no_zero_point(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="has not begun to read"):
        zero_point.began_ns(tmp_path)


def test_all_partitions_and_lives_of_the_index_count_from_when_its_source_could_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_documents, "CORPUS", index_documents.CORPUS / "json")
    context = SourceContext("documents", tmp_path, began_ns=1)
    for _ in range(2):
        for partition in range(latency_index.PARTITIONS):
            latency_index.Documents(4, 50.0).open(partition, context)
    due_from_ns = latency_index.due_from_ns(tmp_path)
    assert due_from_ns > NS, "it is a moment of the clock, not that at which the job began"
    latency_index.Documents(4, 50.0).open(0, context)
    assert latency_index.due_from_ns(tmp_path) == due_from_ns
    assert [path.name for path in tmp_path.iterdir()] == [latency_index.DUE_FROM]
