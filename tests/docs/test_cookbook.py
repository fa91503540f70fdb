"""The recipes of the cookbook: each program runs as its page shows it, loses a task, and writes the right rows.

What varies (which task dies when, how records are batched) varies in the testing kit, on small inputs.
"""

from __future__ import annotations

import importlib.util
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from benchmarks.harness.written import records_in
from examples.cookbook.payment_service import Service
from operators.testing import run
from tests.docs.recipes import CHECKS, PAGES, PROGRAMS, Page, generated, pipeline_of, small_inputs, with_held_end
from tests.faults.conftest import Start
from tests.faults.conftest import start as start
from tests.faults.forked import forked
from tests.faults.job import WAIT_S, Job, environment
from tests.members import members, sample
from tests.oracles.frame import groupings

SMALL = small_inputs()
INPUTS: dict[str, dict[str, tuple[str, int]]] = {
    "deduplication": {"events": ("event", 6_000)},
    "sessions": {"clicks": ("click", 6_000)},
    "top_n": {"sales": ("sale", 6_000)},
    "as_of": {"rates": ("rate", 700), "orders": ("order", 6_000)},
    "fraud_rules": {"payments": ("payment", 6_000), "rules": ("rules", 10)},
    "alerts": {"readings": ("reading", 12_000)},
    "late_data": {"clicks": ("click", 6_000)},
}
"""Program → source → its generator, and how many records the program reads of it."""
needs_arrow = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="the extra `arrow` is not installed"
)


def full_inputs(name: str) -> dict[str, Any]:
    return {source: generated(name, function, range(count)) for source, (function, count) in INPUTS[name].items()}


def rows_in(directory: Path, **files: str) -> dict[str, list[Any]]:
    """Sink → its records, in the order of their positions."""
    return {sink: list(records_in(directory / file)) for sink, file in files.items()}


def assert_answers(page: Page, directory: Path) -> None:
    """Assert that each query of the page has the answer that is shown there."""
    for file, query, answer in page.queries():
        with sqlite3.connect(directory / file) as database:
            rows = ["|".join(map(str, row)) for row in database.execute(query)]
        assert rows == answer, f"{page.program.name}: {query}"


def killed_and_finished(start: Start, page: Page, directory: Path, *arguments: str) -> Job:
    """Run the program with the kill of its page, and return the job, which has ended well."""
    gate = directory / "gate"
    job = start(with_held_end(page.program, directory, gate), *page.arguments, *arguments)
    report = job.finish_killed(gate)
    assert [recovery["task"] for recovery in report["recoveries"]] == page.killed == page.recovered()
    return job


@pytest.mark.parametrize("name", sample(INPUTS, 2))
def test_a_recipe_runs_as_its_page_shows_it(name: str, start: Start, tmp_path: Path) -> None:
    page = Page(name)
    job = killed_and_finished(start, page, tmp_path)
    files = {"out": f"{name}.db"} | ({"late": "too_late.db"} if name == "late_data" else {})
    CHECKS[name](full_inputs(name), rows_in(tmp_path, **files))
    assert_answers(page, tmp_path)
    counts = re.search(r"^records in ([\d,]+), out ([\d,]+),", job.printed, re.MULTILINE)
    assert counts is not None and (name == "late_data" or counts.groups() == page.counts())


@pytest.mark.parametrize("processes", ["per-task", "one", "stages"])
@pytest.mark.parametrize("name", members(SMALL, "sessions", "fraud_rules", "deduplication"))
def test_a_recipe_gives_the_same_whichever_task_dies(name: str, processes: str) -> None:
    inputs = SMALL[name]
    if processes not in groupings(pipeline_of(name)):
        pytest.skip("an operator has several tasks")
    calm = run(pipeline_of(name), inputs, batch=100, processes=processes)
    CHECKS[name](inputs, calm.rows)
    for seed, (task, count) in enumerate(calm.elements.items()):
        crash = {task: max(1, count // 2)}
        result = run(pipeline_of(name), inputs, crash=crash, seed=seed, processes=processes)
        assert result.recoveries == 1
        CHECKS[name](inputs, result.rows)


@pytest.mark.campaign
@needs_arrow
def test_vectors_are_summed_once(start: Start, tmp_path: Path) -> None:
    from examples.cookbook.vectors import sales

    columns = sales(0, 0, 500_000)
    rows = zip(*(column.tolist() for column in columns.values()))
    inputs: dict[str, Any] = {"sales": (dict(zip(columns, row)) for row in rows)}  # which are never all in memory
    page = Page("vectors")
    killed_and_finished(start, page, tmp_path)
    CHECKS["vectors"](inputs, rows_in(tmp_path, out="vectors.db"))
    assert_answers(page, tmp_path)


@needs_arrow
def test_a_table_of_a_lakehouse_has_each_order_once(start: Start, tmp_path: Path) -> None:
    tables = pytest.importorskip("deltalake", reason="deltalake is not installed (extra delta)")
    page = Page("lakehouse")
    killed_and_finished(start, page, tmp_path)
    orders = tables.DeltaTable(tmp_path / "orders").to_pyarrow_table()
    inputs = {"orders": generated("lakehouse", "order", range(6_000))}
    CHECKS["lakehouse"](inputs, {"out": orders.sort_by("order").to_pylist()})
    [(query, answer)] = re.findall(r"^> print\(duckdb.sql\('(.+)'\).fetchall\(\)\)\"\n(.+)$", page.text, re.MULTILINE)
    assert str(pytest.importorskip("duckdb").sql(query).fetchall()) == answer


@pytest.fixture
def service() -> Iterator[Service]:
    """The payment service of the recipe, on a free port."""
    with Service(0) as serving:
        thread = Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def assert_charged_once(service: Service, orders: Any, rows: list[Any]) -> None:
    CHECKS["paid_calls"]({"orders": orders}, {"out": rows})
    orders_by_charge = {charge["charge"]: charge["order"] for charge in service.charges.values()}
    assert orders_by_charge == {row["charge"]: row["order"] for row in rows}


def test_paid_calls_charge_each_order_once(start: Start, tmp_path: Path, service: Service) -> None:
    page = Page("paid_calls")
    url = f"http://127.0.0.1:{service.server_port}/charges"
    killed_and_finished(start, page, tmp_path, "--set", f"url={url}")
    assert_charged_once(
        service, generated("paid_calls", "order", range(1_000)), rows_in(tmp_path, out="paid_calls.db")["out"]
    )
    assert service.requests > len(service.charges), "faults were answered, and nothing was charged twice"
    assert_answers(page, tmp_path)


@pytest.mark.parametrize("crash", [{"charge/0": 5}, {"out/0": 20}, {"orders/0": 30}], ids=str)
def test_a_crash_charges_no_order_twice(service: Service, crash: dict[str, int]) -> None:
    orders = generated("paid_calls", "order", range(60))
    settings = {"url": f"http://127.0.0.1:{service.server_port}/charges"}
    result = run(PROGRAMS / "paid_calls.py", {"orders": orders}, crash=crash, settings=settings)
    assert_charged_once(service, orders, list(result["out"]))


def test_a_backfill_is_upgraded_while_it_runs(start: Start, tmp_path: Path) -> None:
    page, program, gate = Page("backfill"), tmp_path / "backfill.py", tmp_path / "gate"
    text = (PROGRAMS / "backfill.py").read_text()
    live = "GeneratedSource(live_order, "
    assert live in text
    added = "from tests.faults.pipelines.held_source import with_end_at\n"
    program.write_text(added + text.replace(live, f"with_end_at({str(gate)!r}, {live.replace('(', ', ')}"))
    job = start(program)
    job.until_written(20_100)
    stopping = forked(tmp_path, ("savepoint", "--stop", "--state-dir", str(job.state)), environment(), WAIT_S)
    assert stopping.returncode == 0, stopping.stderr
    job.finish_well()
    [edit] = re.findall(r"^\$ (sed -i .*)$", page.text, re.MULTILINE)
    before = program.read_text()
    subprocess.run(edit, shell=True, cwd=tmp_path, check=True)
    assert program.read_text() != before
    job.start(*page.arguments)
    job.until("the kill has happened", lambda view: not view["kills_left"] and view["recoveries"])
    gate.touch()
    assert [recovery["task"] for recovery in job.finish_well()["recoveries"]] == page.killed == page.recovered()
    rows = rows_in(tmp_path, out="backfill.db")
    orders = {
        "history": generated("backfill", "past_order", range(20_000)),
        "live": generated("backfill", "live_order", range(20_000)),
    }
    CHECKS["backfill"](orders, rows)
    upgraded = [row for row in rows["out"] if "gold" in row]
    assert upgraded and all(row["gold"] == (row["total"] >= 200_000) for row in upgraded)
    assert {row["order"] for row in upgraded} == set(range(40_000 - len(upgraded), 40_000))
    assert_answers(page, tmp_path)


def test_every_recipe_has_a_page_a_program_and_a_check() -> None:
    names = {path.stem for path in PAGES.glob("*.md")} - {"index", "try_a_change"}  # the latter has no program
    assert names == set(CHECKS) == {path.stem for path in PROGRAMS.glob("*.py")} - {"__init__", "payment_service"}
    index = (PAGES / "index.md").read_text()
    assert [name for name in sorted(names) if f"({name}.md)" not in index] == []
    assert [name for name in sorted(names) if not Page(name).includes_its_program()] == []
