"""`causal replay` of a real job of which a task died: it verifies, finds events, and stops at them in pdb."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness.written import records_in

JOB = """
from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("shop")


def order(partition, number):
    return {"order": number, "customer": f"c{number % 40}", "cents": 100 + number * 37 % 900}


class Total(Operator):
    def process(self, record, ctx):
        ctx.state["sum"] = ctx.state.get("sum", 0) + record["cents"]
        yield {**record, "total": ctx.state["sum"], "luck": ctx.random.random(), "at": ctx.now()}


(
    pipeline.source("orders", GeneratedSource(order, count=3_000, rate=2_000))
    .key_by(lambda order: order["customer"])
    .process("total", Total(), parallelism=2)
    .sink("out", SqliteSink("out.db"))
)
"""
LINE = JOB.splitlines().index('        ctx.state["sum"] = ctx.state.get("sum", 0) + record["cents"]') + 1
CAUSAL = (sys.executable, "-m", "deploy")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a recorded job of which a task was killed."""
    place = tmp_path_factory.mktemp("shop")
    (place / "shop.py").write_text(JOB)
    options = ("--record", "1h,1GB", "--checkpoint-interval", "0.2", "--kill", "total/0@0.6")
    subprocess.run([*CAUSAL, "run", "shop.py", *options], cwd=place, check=True, capture_output=True, timeout=120)
    return place


def replay(place: Path, *options: str, commands: str = "", status: int = 0) -> str:
    """Return what the command prints."""
    done = subprocess.run(
        [*CAUSAL, "replay", "shop", *options], cwd=place, input=commands, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if not status else done.stderr


def test_all_channels_of_all_epochs_are_verified(recorded: Path) -> None:
    assert "of orders/0, total/0, total/1, out/0" in replay(recorded)
    assert "of orders/0, total/1: " in replay(recorded, "--task", "total/1")


@pytest.mark.parametrize("position", [0, 1, 777, 2500])
def test_the_record_that_causes_a_row_is_shown_with_the_state_before_and_after(recorded: Path, position: int) -> None:
    row = list(records_in(recorded / "out.db"))[position]
    shown = replay(recorded, "--row", f"out/0:{position}")
    order = {name: row[name] for name in ("order", "customer", "cents")}
    before = row["total"] - row["cents"]
    assert f"  record  {order!r}\n" in shown and f"shop.py:{LINE - 1} in process\n" in shown
    assert ("  state   empty\n" if not before else f"  state   {{'state': {{'sum': {before}}}}}\n") in shown
    assert f"  after   {{'state': {{'sum': {row['total']}}}}}\n" in shown


def test_the_event_at_which_a_task_died_is_shown(recorded: Path) -> None:
    shown = replay(recorded, "--at-crash")
    assert shown.startswith("total/0, epoch ") and "  key     'c" in shown
    epoch = re.match(r"total/0, epoch (\d+)", shown)
    assert epoch and replay(recorded, "--at-crash", "--epoch", epoch[1]) == shown


def test_a_person_steps_through_the_events_of_a_key_and_back(recorded: Path) -> None:
    row = list(records_in(recorded / "out.db"))[1000]
    commands = ["p ctx.key, state", "n", "ne", "p record['order']", "back"]
    commands += ["p record['order']", "back", "p record['order']", "watch state", "p record['order']", "q"]
    shown = replay(recorded, "--row", "out/0:1000", "--pdb", commands="\n".join(commands) + "\n")
    prints = [line.removeprefix("(replay) ") for line in shown.splitlines() if line.startswith("(replay) ")]
    numbers = [int(line) for line in prints if line.isdecimal()]
    assert numbers == [row["order"] + 40, row["order"], row["order"] - 40, row["order"]]
    assert f"({row['customer']!r}, {{'state': {{'sum': {row['total'] - row['cents']}}}}})" in prints
    assert f"shop.py({LINE})process()" in shown


def test_next_passes_a_yield_and_stops_at_the_end_and_then_where_the_code_is_called_next(recorded: Path) -> None:
    commands = ["n", "n", "p ctx.key, record['order']", "n", "p 'key' in dir(), ctx.key", "q"]
    shown = replay(recorded, "--row", "out/0:1000", "--pdb", commands="\n".join(commands) + "\n")
    row = list(records_in(recorded / "out.db"))[1000]
    assert shown.count(f"shop.py({LINE})process()") == 1 and shown.count(f"shop.py({LINE + 1})process()") == 2
    assert "--Return--" in shown and f"({row['customer']!r}, {row['order']})" in shown
    _, _, after = shown.partition("--Return--")
    assert "--Call--" in after and "shop.py(" in after and "operators/" not in after


def test_the_first_record_of_a_key_for_which_an_expression_is_true_is_shown(recorded: Path) -> None:
    rows = [row for row in records_in(recorded / "out.db") if row["customer"] == "c7" and row["cents"] > 500]
    shown = replay(recorded, "--key", "c7", "--break", "operator == 'total' and record['cents'] > 500")
    first = min(rows, key=lambda row: int(row["order"]))
    assert json.dumps(first["order"]) in shown and f"'cents': {first['cents']}" in shown


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--epoch", "9999"), "contains no epoch 9999; it has epochs 0 to"),
        (("--task", "total/7"), "there is no task 'total/7'; the tasks are orders/0, total/0, total/1, out/0"),
        (("--row", "out"), "use SINK:POSITION"),
        (("--row", "in/0:1"), "no sink writes as 'in/0'; rows are written as out/0"),
        (("--row", "out/0:99999"), "rows in the recorded epochs; positions begin at 0"),
        (("--break", "record["), "use an expression such as"),
        (("--break", "recrod"), "name 'recrod' is not defined"),
        (("--key", "c99"), "no event is what was asked for"),
        (("--at", "noon"), "use a time such as"),
        (("--at-crash", "--epoch", "0"), "no task died in epoch 0"),
        (("--at-crash", "--at", "12:00"), "use neither --at nor --row"),
    ],
)
def test_what_cannot_be_found_is_one_line(recorded: Path, options: tuple[str, ...], line: str) -> None:
    error = replay(recorded, *options, status=1 if "c99" in options else 2)
    assert line in error and error.count("\n") == 1
