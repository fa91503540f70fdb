"""CPU time of tasks counts from Spark's first micro-batch on, and only theirs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.throughput import spark_vectors
from operators.sources.spark_source import ingest_directory


def test_time_counts_from_the_first_micro_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([1.0, 2.0, 5.0])

    def seconds(self: spark_vectors.SinceFirstBatch) -> dict[str, dict[str, float]]:
        now = next(moments)
        return {"rows": {"python": now, "sockets": now}, "count": {"python": 3.0}, "other": {"java": 100 * now}}

    monkeypatch.setattr(spark_vectors.SinceFirstBatch, "seconds", seconds)
    times = spark_vectors.SinceFirstBatch(tmp_path)
    times.look()
    manifests = ingest_directory(tmp_path, "rows") / "manifests"
    manifests.mkdir(parents=True)
    times.look()
    (manifests / "0000000000.json").write_text("{}")
    times.look()
    assert times.tasks_s() == 2 * (5.0 - 2.0)


@pytest.mark.skipif(find_spec("pyspark") is not None, reason="pyspark is installed")
def test_without_spark_it_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark_vectors", "--json", str(tmp_path / "outcome.json")]) == 1
    assert "pyspark" in capsys.readouterr().err
