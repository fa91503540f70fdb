"""`causal lineage` of real jobs of which tasks died: their origins are the input that the rows carry."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.written import records_in
from causal.errors import PipelineError
from operators.recordings.recording import open_recording
from operators.replay.lineage import RowOf, lineage_of

JOB = """
from operators import Operator, Pipeline, Tumbling
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("shop")


def order(partition, number):
    return {"order": number, "customer": f"c{number % 20}", "cents": 100 + number * 37 % 900}


def summed(sum, order):
    return {"orders": [*sum["orders"], *order["orders"]], "cents": sum["cents"] + order["cents"]}


class Baskets(Operator):
    def process(self, record, ctx):
        basket = ctx.state.setdefault("basket", [])
        basket.append(record["order"])
        if len(basket) == 1:
            ctx.set_timer(ctx.now() + 0.05, "paid")

    def on_timer(self, name, ctx):
        yield {"customer": ctx.key, "orders": ctx.state.pop("basket"), "luck": ctx.random.random()}


orders = pipeline.source("orders", GeneratedSource(order, count=1_200, rate=700)).map(
    "listed", lambda order: {**order, "orders": [order["order"]]}
)
by_customer = orders.key_by(lambda order: order["customer"])
by_customer.reduce("total", summed, parallelism=2).sink("out", SqliteSink("out.db"))
by_customer.process("baskets", Baskets()).sink("paid", SqliteSink("paid.db"))
(
    orders.watermarks("timed", lambda order: order["order"] / 100)
    .key_by(lambda order: order["customer"])
    .window("second", Tumbling(1.0), lambda key, rows, window: [{"orders": [row["order"] for row in rows]}])
    .sink("seconds", SqliteSink("seconds.db"))
)
"""
CAUSAL = (sys.executable, "-m", "deploy")


def run(place: Path, *options: str) -> Path:
    """Run the job with every checkpoint kept, and return its directory."""
    (place / "shop.py").write_text(JOB)
    words = ("--record", "60s,100MB", "--checkpoint-interval", "0.15", *options)
    subprocess.run([*CAUSAL, "run", "shop.py", *words], cwd=place, check=True, capture_output=True, timeout=120)
    return place


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a recorded job of which two tasks were killed."""
    return run(tmp_path_factory.mktemp("shop"), "--kill", "total/0@0.5", "--kill", "baskets/0@1.0")


@pytest.fixture(scope="module")
def in_stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with cells."""
    return run(tmp_path_factory.mktemp("stages"), "--processes", "stages", "--kill", "total/0@0.8")


def lineage(place: Path, *words: str, status: int = 0) -> str:
    """Return what the command prints."""
    done = subprocess.run([*CAUSAL, "lineage", "shop", *words], cwd=place, capture_output=True, text=True, timeout=100)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if not status else done.stderr


def graph(place: Path, sink: str, position: int, back: int = 0) -> dict[str, Any]:
    """Return the lineage of a row."""
    job = place / ".causal" / "shop"
    with tempfile.TemporaryDirectory() as scratch:
        return lineage_of(open_recording(job), job, Path(scratch), RowOf(sink, position), back)


def orders_in(graph: dict[str, Any]) -> set[int]:
    """Return the orders that are listed as input records."""
    return {node["record"]["order"] for node in graph["nodes"] if node["kind"] == "input"}


def last_recorded(place: Path, sink: str) -> int:
    """Return the position of the last row of a sink that is recorded."""
    with pytest.raises(PipelineError, match="has only") as missing:
        graph(place, sink, 999_999)
    return int(str(missing.value).split(" has only ")[1].split()[0]) - 1


@pytest.mark.parametrize("part", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("job", ["recorded", "in_stages"])
def test_every_record_of_a_reduction_is_found_and_no_other(
    job: str, part: float, request: pytest.FixtureRequest
) -> None:
    place = request.getfixturevalue(job)
    position = int(last_recorded(place, "out") * part)
    row = list(records_in(place / "out.db"))[position]
    shown = graph(place, "out/0", position, back=1000)
    assert shown["row"]["record"] == json.loads(json.dumps(row)) and shown["row"]["position"] == position
    assert orders_in(shown) == set(row[1]["orders"]) and shown["exact"] and not shown["notes"]
    assert shown["inputs"] == len(row[1]["orders"]) and shown["from_epoch"] == 0
    into_row = [edge for edge in shown["edges"] if edge["to"] == "row"]
    from_input = [edge for edge in shown["edges"] if edge["from"].startswith("orders/0:")]
    assert len(into_row) == 1 and into_row[0]["through"] == []
    assert [edge["through"] for edge in from_input] == [["listed"]] * len(row[1]["orders"])


def test_what_a_short_look_back_lacks_is_said_with_the_remedy(recorded: Path) -> None:
    position = last_recorded(recorded, "out")
    row = list(records_in(recorded / "out.db"))[position]
    shown = graph(recorded, "out", position)
    assert orders_in(shown) < set(row[1]["orders"]) and not shown["exact"]
    remedy = f"look further back with --back {shown['row']['epoch']} "
    assert remedy in shown["notes"][0] and shown["operators"][0]["older_keys"] == [row[0]]
    again = graph(recorded, "out", position, shown["row"]["epoch"])
    assert orders_in(again) == set(row[1]["orders"])


def test_a_window_is_its_records_and_a_timer_those_of_its_key(recorded: Path) -> None:
    position = last_recorded(recorded, "seconds")
    row = list(records_in(recorded / "seconds.db"))[position]
    shown = graph(recorded, "seconds", position, 1000)
    assert orders_in(shown) == set(row["orders"]) and shown["exact"]
    position = last_recorded(recorded, "paid")
    row = list(records_in(recorded / "paid.db"))[position]
    shown = graph(recorded, "paid", position, 1000)
    assert orders_in(shown) >= set(row["orders"])
    kinds = [value["kind"] for value in shown["determinants"][-1]["values"]]
    assert kinds[0] == "timer" and "random" in kinds
    timer = next(node for node in shown["nodes"] if node["kind"] == "timer")
    assert timer["key"] == row["customer"] and timer["operator"] == "baskets"


def test_people_read_the_records_the_events_and_the_determinants(recorded: Path) -> None:
    row = list(records_in(recorded / "out.db"))[41]
    shown = lineage(recorded, "out", "41", "--back", "1000").splitlines()
    assert shown[0].startswith("row 41 of out/0, epoch ")
    number = len(row[1]["orders"])
    assert f"it comes from exactly {number} input record{'s' * (number > 1)}:" in shown
    assert any(line.startswith("  orders, partition 0, position ") for line in shown)
    assert any(line.startswith("  epoch 0, event ") and "from orders/0:" in line for line in shown)
    assert any(": the next " in line for line in shown)
    assert any(line.startswith("performed by version 1, code ") for line in shown)
    assert "earlier ones; --limit lists more" in "\n".join(
        lineage(recorded, "out", "300", "--back", "99", "--limit", "1").split("\n")
    )


def test_a_limit_leaves_out_the_earliest(recorded: Path) -> None:
    job, position = recorded / ".causal" / "shop", last_recorded(recorded, "out")
    with tempfile.TemporaryDirectory() as scratch:
        shown = lineage_of(open_recording(job), job, Path(scratch), RowOf("out", position), 1000, nodes_max=3)
    row = list(records_in(recorded / "out.db"))[position]
    assert orders_in(shown) == set(row[1]["orders"][-3:]) and shown["inputs"] == len(row[1]["orders"])
    assert shown["left_out"] == {"inputs": len(row[1]["orders"]) - 3, "events": len(row[1]["orders"]) - 3}


@pytest.mark.parametrize("sink", ["in", "out/3"])
def test_a_sink_that_does_not_exist_is_refused_with_those_that_do(recorded: Path, sink: str) -> None:
    with pytest.raises(PipelineError, match=f"^no sink writes as '{sink}'; rows are written as .*out/0"):
        graph(recorded, sink, 0)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("out", "x"), "x: ROW is a position such as 17"),
        (("out", "99999"), "rows in the recorded epochs; positions begin at 0"),
        (("out", "1", "--back", "-1"), "use --back 0 and --limit 1 or more"),
    ],
)
def test_what_is_not_there_is_one_line(recorded: Path, words: tuple[str, ...], line: str) -> None:
    error = lineage(recorded, *words, status=2)
    assert line in error and error.count("\n") == 1


def test_nothing_of_the_job_changes(recorded: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in recorded.rglob("*") if path.is_file()}
    graph(recorded, "paid", 0)
    after = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in recorded.rglob("*") if path.is_file()}
    assert {path: each for path, each in after.items() if "__pycache__" not in path.parts} == {
        path: each for path, each in before.items() if "__pycache__" not in path.parts
    }
