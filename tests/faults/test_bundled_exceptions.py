"""A job that ended with an exception of user code: its bundle file is a test that fails until the code is repaired."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from causal.errors import ReplayDivergence
from operators.testing import StillRaises, replay

JOB = """
from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("shop")


def order(partition, number):
    return {"order": number, "customer": f"c{number % 7}", **({"cents": number} if number != 500 else {})}


class Total(Operator):
    def process(self, record, ctx):
        cents = record["cents"]
        ctx.state["sum"] = ctx.state.get("sum", 0) + cents
        yield {**record, "total": ctx.state["sum"], "luck": ctx.random.random(), "at": ctx.now()}


(
    pipeline.source("orders", GeneratedSource(order, count=800, rate=1_000))
    .key_by(lambda order: order["customer"])
    .process("total", Total(), parallelism=2)
    .sink("out", SqliteSink("out.db"))
)
"""
REPAIRED = JOB.replace('record["cents"]', 'record.get("cents", 0)')
CALLING = JOB.replace('record["cents"]', 'record.get("cents") or ctx.call(int)')


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle file of the exception, next to several versions of the code."""
    place = tmp_path_factory.mktemp("shop")
    (place / "shop.py").write_text(JOB)
    causal = (sys.executable, "-m", "deploy")
    run = (*causal, "run", "shop.py", "--record", "--checkpoint-interval", "0.15")
    assert subprocess.run(run, cwd=place, capture_output=True, timeout=100).returncode == 1
    for output in ("bug.causal", "again.causal"):
        bundle = (*causal, "bundle", "shop", "--at-crash", "-o", output)
        done = subprocess.run(bundle, cwd=place, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        assert "it ends with the recorded exception: operator 'total', key 'c3'" in done.stdout
        assert "it replays without the job" in done.stdout and not done.stderr
    assert (place / "bug.causal").read_bytes() == (place / "again.causal").read_bytes()
    (place / "repaired.py").write_text(REPAIRED)
    (place / "calling.py").write_text(CALLING)
    return place / "bug.causal"


def test_the_exception_is_raised_again_until_the_code_is_repaired(file: Path) -> None:
    with pytest.raises(StillRaises, match="the recorded exception is raised again: .*KeyError: 'cents'") as caught:
        replay(file)
    assert isinstance(caught.value.__cause__, KeyError)
    result = replay(file, code=file.with_name("repaired.py"))
    assert result.raised is None and result.verified > 0
    last = next(row for row in result.emitted if row["order"] == 500)
    assert result.state(last["customer"])["sum"] == last["total"] == sum(range(3, 500, 7))


def test_the_recorded_code_raises_it_as_recorded(file: Path) -> None:
    result = replay(file, code="bundle")
    assert "KeyError: 'cents'" in str(result.raised) and "raised OperatorFailed" in repr(result)
    assert all(row["order"] != 500 for row in result.emitted)


def test_the_outside_world_is_not_asked_beyond_the_exception(file: Path) -> None:
    with pytest.raises(ReplayDivergence, match="asks for an answer of the outside world after the end of its log"):
        replay(file, code=file.with_name("calling.py"))


def test_a_replay_stops_at_the_exception(file: Path) -> None:
    command = (sys.executable, "-m", "deploy", "replay", "bug.causal")
    done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, timeout=100)
    assert "'order': 500" in done.stdout and "raises  OperatorFailed: operator 'total'" in done.stdout
