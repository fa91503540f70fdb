"""`causal rescale --auto`: an operator gets more tasks while it is busy and fewer while it is idle; rows are exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.harness.runs import sets
from benchmarks.harness.written import records_in
from tests.faults.conftest import Start
from tests.faults.job import causal, environment
from tests.faults.roots import ROOTS
from tests.faults.test_bad_input import one_line

ELEMENTS, KEYS = 40_000, 40
PIPELINE = f"""
from pathlib import Path
from examples.hosts.gated import GatedSource
from operators import Operator, Pipeline, ValueState
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

class Count(Operator):
    total = ValueState[int](default=0)

    def process(self, record, ctx):
        n = self.total.value = self.total.value + 1
        if not calm.exists():
            for _ in range(400_000):
                pass
        yield {{"key": ctx.key, "n": n, "i": record["i"]}}

class Alone(Operator):
    total = ValueState[int](default=0)

    def process(self, record, ctx):
        self.total.value += 1
        yield record

pipeline = Pipeline("load")
calm, gate = Path(pipeline.settings["calm"]), Path(pipeline.settings["gate"])
source = GatedSource(GeneratedSource(lambda p, i: {{"k": i % {KEYS}, "i": i}}, {ELEMENTS}, rate=300.0), gate)
numbers = pipeline.source("numbers", source).process("alone", Alone(), parallelism=2)
numbers.key_by(lambda record: record["k"]).process("count", Count(), parallelism=1).sink("out", SqliteSink("out.db"))
"""
REFUSED = [
    (("count=4",), "use OPERATOR=MIN..MAX"),
    (("count=4..2",), "exchange them"),
    (("coun=1..4",), "did you mean"),
    (("count=1..129",), "128 key groups"),
    (("count=1..4", "--busy", "1.5"), "--busy 1.5"),
    (("count=1..4", "--busy", "much"), "--busy"),
    (("count=1..4", "--idle", "0.9"), "--idle 0.9"),
    (("count=1..4", "--for", "0"), "--for 0"),
    ((), "OPERATOR"),
    (("alone=3..4",), "keeps state per task"),
]
"""Arguments of `--auto` that are refused, and a part of the line that states the reason."""


def counting(view: dict[str, Any]) -> int:
    """Return the number of tasks that count."""
    return sum(task["task"].startswith("count/") for task in view["tasks"])


def test_a_busy_operator_gets_more_tasks_and_an_idle_one_fewer(start: Start, tmp_path: Path) -> None:
    path, calm, gate = tmp_path / "load.py", tmp_path / "calm", tmp_path / "gate"
    path.write_text(PIPELINE)
    job = start(path, *sets(calm=calm, gate=gate), "--checkpoint-interval", "0.5")
    job.until_warm(records=20)
    for words, part in REFUSED:
        status, said = causal(tmp_path, "rescale", "--auto", *words, "--state-dir", str(job.state))
        assert status == 2 and part in one_line(said), (words, said)
    for words in (("count=1..2",), ("count=2", "--idle", "0.1")):
        status, said = causal(tmp_path, "rescale", *words, "--state-dir", str(job.state))
        assert status == 2 and "--auto" in one_line(said), (words, said)

    words = ("rescale", "--auto", "count=1..2", "--for", "2", "--state-dir", str(job.state))
    with open(tmp_path / "printed", "w+") as printed, open(tmp_path / "said", "w+") as said_to:
        watching = ROOTS.start_on(None, words, tmp_path, environment(), printed, said_to)

        def until(tasks: str) -> None:
            """Wait until the command has given the operator a number of tasks."""
            expected = f"count has {tasks}: its tasks worked for "
            job.until(expected, lambda view: expected in (tmp_path / "printed").read_text() or None)

        until("2 tasks")
        calm.touch()
        until("1 task")
        complete = job.until(
            "one task counts", lambda view: None if counting(view) > 1 else view["checkpoint"]["complete"]
        )
        job.until("its files are the only ones", lambda view: view["checkpoint"]["complete"] > complete)
        gate.touch()
        job.finish_well()
        assert watching.wait(60.0) == 0
    assert not (tmp_path / "said").read_text()
    assert len(list((job.state / "savepoints").iterdir())) == 1, "only the last savepoint is kept"
    numbers: dict[int, list[int]] = {}
    rows = list(records_in(tmp_path / "out.db"))
    for row in rows:
        numbers.setdefault(row["key"], []).append(row["n"])
    assert sorted(row["i"] for row in rows) == list(range(ELEMENTS))
    assert sorted(numbers) == list(range(KEYS))
    assert all(each == list(range(1, len(each) + 1)) for each in numbers.values())
    status, line = causal(tmp_path, "rescale", "--auto", "count=1..2", "--state-dir", str(job.state))
    assert status == 2 and "is not running" in one_line(line)
