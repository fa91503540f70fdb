"""`causal init`: writes a small project that runs and passes its test, as a starting point for users."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from causal.errors import PipelineError
from operators.graph import check_name

PIPELINE = '''"""Money spent per customer, and a present now and then: orders in `orders/*.csv`, rows in `NAME.db`."""

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import FilesSource


class Spent(Operator):
    """Adds up what each customer spends. State is per key and survives any crash; attributes do not."""

    def process(self, order, ctx):
        total = ctx.state["total"] = ctx.state.get("total", 0) + int(order["cents"])
        present = ctx.random.random() < 0.1  # nondeterministic, and yet exactly once
        yield {"customer": ctx.key, "total": total, "present": present, "at": ctx.now()}


pipeline = Pipeline("NAME", processes="one")  # one process and its standby: see docs/guide/processes.md
orders = pipeline.source("orders", FilesSource(pipeline.settings.get("orders", "orders/*.csv")))
spent = orders.key_by(lambda order: order["customer"]).process("spent", Spent())
spent.sink("out", SqliteSink("NAME.db", existing="replace"))
'''

TEST = '''"""The pipeline in a test: no processes, virtual time, and crashes at every record."""

from pathlib import Path

import pytest

from operators.testing import every_crash, run

PIPELINE = Path(__file__).with_name("pipeline.py")
ORDERS = [{"customer": name, "cents": str(cents)} for name, cents in [("ann", 300), ("bob", 250), ("ann", 120)]]


def totals(result):
    return sorted((row["customer"], row["total"]) for row in result["out"])


def test_totals_per_customer():
    assert totals(run(PIPELINE, {"orders": ORDERS})) == [("ann", 300), ("ann", 420), ("bob", 250)]


@pytest.mark.parametrize("crash", every_crash(PIPELINE, {"orders": ORDERS}), ids=str)
def test_no_crash_shows(crash):
    assert totals(run(PIPELINE, {"orders": ORDERS}, crash=crash)) == [("ann", 300), ("ann", 420), ("bob", 250)]
'''

README = """# NAME

    causal run pipeline.py --config settings.toml            # rows in NAME.db
    causal run pipeline.py --config settings.toml --kill spent/0@0      # the same, while a task dies
    causal plan pipeline.py                                  # which operators share a process
    causal run pipeline.py --config settings.toml --processes per-task  # a process per task: failures are isolated
    pip install pytest && python -m pytest                   # the test, with a crash at every record
    causal doctor                                            # whether this machine is fit

`pipeline.py` is the pipeline, `orders/` its input, `settings.toml` settings of the job. The state of a run is in
`.causal/`; `causal run pipeline.py --resume` continues one that was interrupted.
"""

SETTINGS = """# Settings of the job; all of them are in docs/operations.md.
guarantee = "causal"
checkpoint_interval_s = 1.0
on_error = "stop"            # "dead-letter": set bad records aside, and continue
"""

CUSTOMERS = ("ann", "bob", "cleo", "dan", "eve")
ORDERS = 5000


def add_parser(commands: Any) -> None:
    """Add this command to those of `causal`."""
    beginning = commands.add_parser("init", help="write a small project that runs: pipeline, test, settings, input")
    beginning.add_argument("name", metavar="NAME", help="of the project, and of the directory that is made")
    beginning.set_defaults(act=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the project and return 0.

    Raises:
        PipelineError: the name is invalid, or the directory is not empty.
    """
    directory = Path(arguments.name)
    name = check_name(directory.absolute().name, "a project", "causal init")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise PipelineError(f"{directory} already exists; use another name, or remove it")
    lines = [f"{CUSTOMERS[n % 5]},{100 + n * 37 % 900}" for n in range(ORDERS)]
    files = {
        "pipeline.py": PIPELINE,
        "test_pipeline.py": TEST,
        "README.md": README,
        "settings.toml": SETTINGS,
        "orders/2026.csv": "\n".join(["customer,cents", *lines, ""]),
        ".gitignore": ".causal/\n*.db*\n__pycache__/\n",
    }
    for path, text in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text.replace("NAME", name))
    go = "" if directory.absolute() == Path.cwd() else f"cd {directory} && "
    print(f"wrote {directory}/: {go}causal run pipeline.py --config settings.toml")
    return 0
