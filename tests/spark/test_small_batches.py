"""Small batches are collected by Spark's driver: when, and as what tasks would have been given."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from operators.spark.small_batches import BYTES_MAX, ROWS_MAX, UNKNOWN_ROWS_MAX, SmallBatches
from tests.spark.conftest import ROOT


@pytest.mark.campaign
@pytest.mark.spark
def test_what_is_collected_is_what_tasks_are_given() -> None:
    argv = [sys.executable, "-m", "tests.spark.small_batches_program"]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr


def test_what_may_be_collected_follows_from_what_came_before() -> None:
    small = SmallBatches()
    seen = [small.rows_max]
    for rows, size in (
        (0, 0),  # nothing is known
        (10, 1000),
        (100, 100 * BYTES_MAX // 50),  # large in all
        (0, 0),
        (5, 5 * BYTES_MAX // 50),  # large rows
        (ROWS_MAX, ROWS_MAX),
        (ROWS_MAX + 1, ROWS_MAX),
    ):
        small.note(rows, size)
        seen.append(small.rows_max)
    assert seen == [UNKNOWN_ROWS_MAX, UNKNOWN_ROWS_MAX, ROWS_MAX, 0, UNKNOWN_ROWS_MAX, 50, ROWS_MAX, 0]
