"""The view of a user's own tools of the installed package, from a directory outside of the checkout.

mypy, an editor's type checker and its completion run no code: they follow paths only, so that an install by hooks of
the interpreter is invisible to them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.members import except_for

MISTAKES = """\
from collections.abc import Iterator
from typing import TypedDict

from operators import Context, Operator, Pipeline, Tumbling
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource


class Bid(TypedDict):
    auction: int
    price: float


def make(partition: int, i: int) -> Bid:
    return {"auction": i % 7, "price": i / 2}


class Best(Operator):
    def process(self, record: Bid, ctx: Context) -> Iterator[float]:
        if ctx.event_tme > 3:  # wrong
            yield record["price"]


pipeline = Pipeline(7)  # wrong
pipeline.source("made", make)  # wrong
bids = pipeline.source("bids", GeneratedSource(make, 10, rte=5))  # wrong
prices: Pipeline = bids.map("price", lambda bid: bid["price"])  # wrong
keyed = bids.key_by(lambda bid: bid["auction"])
keyed.window("minutes", Tumbling("60"), max)  # wrong
keyed.process("best", Best()).sink("out", "out.db")  # wrong
"""
CORRECT = """\
from operators import BroadcastOperator, Count, Operator, Pipeline, Session, Sliding, Sum, Tumbling
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource


class Spent(Operator):
    def process(self, order, ctx):
        ctx.set_timer(ctx.now() + 1, "idle")
        yield order["cents"]

    def on_timer(self, which, ctx):
        yield which


class Limit(BroadcastOperator):
    def process(self, order, ctx):
        if order["cents"] < ctx.broadcast.get("cents", 0):
            yield order

    def process_broadcast(self, rule, ctx):
        ctx.broadcast.update(rule)


pipeline = Pipeline("correct")
orders = pipeline.source("orders", GeneratedSource(lambda partition, i: {"at": i, "cents": i % 7}, 10))
rules = pipeline.source("rules", GeneratedSource(lambda partition, i: {"cents": i}, 10))
keyed = orders.watermarks("time", lambda order: order["at"]).key_by(lambda order: order["cents"])
keyed.process("spent", Spent()).sink("out", SqliteSink("out.db"))
keyed.broadcast("limit", rules, Limit()).sink("limited", SqliteSink("out.db"))
keyed.window("minutes", Tumbling(60), Sum(lambda order: order["cents"])).sink("sums", SqliteSink("out.db"))
keyed.window("recent", Sliding(60, 30), Count()).sink("counts", SqliteSink("out.db"))
keyed.window("visits", Session(30), Count()).sink("visited", SqliteSink("out.db"))
"""
WRONG = {n for n, line in enumerate(MISTAKES.splitlines(), 1) if line.endswith("# wrong")}
_LINE = re.compile(r"mistakes\.py:(\d+):.*\berror: ")
CHECKERS = {
    "mypy": ("-m", "mypy", "--cache-dir", "cache"),
    "basedpyright": ("-m", "basedpyright", "--level", "error", "--pythonpath", sys.executable),
}
COMPLETED = """
import jedi
script = jedi.Script("from operators import Pipeline\\nPipeline('a').sou", environment=jedi.InterpreterEnvironment())
print([each.name for each in script.complete()])
"""


def outside(directory: Path, *argv: str) -> str:
    """The output of Python in a directory, without the variables by which a test finds the checkout."""
    environment = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    environment["XDG_CACHE_HOME"] = str(directory / "cache")  # jedi must write one, and a home may be read-only
    done = subprocess.run(
        [sys.executable, *argv], cwd=directory, env=environment, capture_output=True, text=True, timeout=280
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("checker", except_for(CHECKERS, "mypy"))
def test_a_type_checker_finds_the_mistakes_and_accepts_a_correct_program_outside_of_the_checkout(
    checker: str, tmp_path: Path
) -> None:
    pytest.importorskip(checker, reason=f"{checker} is not installed (extra `dev`)")
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    (tmp_path / "correct.py").write_text(CORRECT)
    said = outside(tmp_path, *CHECKERS[checker], "mistakes.py", "correct.py")
    assert len(WRONG) == 7
    assert {int(line) for line in _LINE.findall(said)} == WRONG, f"{said}\ninstall again: pip install -e ."
    assert "could not be resolved" not in said and "import-not-found" not in said
    assert "correct.py:" not in said, said


@pytest.mark.skipif(find_spec("jedi") is None, reason="jedi is not installed (extra `dev`)")
def test_an_editor_completes_names_outside_of_the_checkout(tmp_path: Path) -> None:
    assert "'source'" in outside(tmp_path, "-c", COMPLETED)
