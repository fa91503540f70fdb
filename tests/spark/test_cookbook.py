"""The recipe of the cookbook that reads with Spark and is read by Spark, with the kill that its page shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness.written import records_in
from operators.testing import run
from tests.docs.recipes import CHECKS, PROGRAMS, Page
from tests.spark.conftest import ROOT, WAIT_S

ORDERS = [{"order": n, "customer": f"c{n % 7}", "cents": 100 + n * 37 % 900} for n in range(1_000)]


@pytest.mark.spark
@pytest.mark.campaign
def test_orders_go_from_spark_to_spark(tmp_path: Path) -> None:
    page = Page("spark_in_out")
    (tmp_path / "orders").mkdir()
    for part in range(4):
        lines = [json.dumps(order) for order in ORDERS[part * 250 : part * 250 + 250]]
        (tmp_path / "orders" / f"{part}.json").write_text("\n".join(lines) + "\n")
    shutil.copy(page.program, tmp_path)
    job = [sys.executable, "-m", "deploy", "run", page.program.name, *page.arguments, "--report", "report.json"]
    reading = [sys.executable, page.program.name]
    printed = []
    for argv in (job, reading):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=WAIT_S)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    recoveries = json.loads((tmp_path / "report.json").read_text())["recoveries"]
    assert [recovery["task"] for recovery in recoveries] == page.killed == page.recovered()
    CHECKS["spark_in_out"]({"orders": ORDERS}, {"out": list(records_in(tmp_path / "totals.db"))})
    table = re.findall(r"^[+|].*$", printed[1], re.MULTILINE)
    assert table and table == re.findall(r"^[+|].*$", page.text, re.MULTILINE)


def test_a_crash_changes_no_total() -> None:
    for crash in ({"total/0": 9}, {"total/1": 5}, {"out/0": 30}, {"orders/0": 20}):
        rows = run(PROGRAMS / "spark_in_out.py", {"orders": ORDERS[:60]}, crash=crash).rows
        CHECKS["spark_in_out"]({"orders": ORDERS[:60]}, rows)
