"""Two versions side by side: what differs, where it begins, failures, and requests to the outside world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from causal.records.values import encode
from operators.replay.answers import REFUSE, create, question_of_record
from operators.replay.pairing import FIELD, RowKey
from operators.replay.performance import Step
from operators.replay.side_by_side import NEW, RECORDED, Outcome, Scene, Version, compare
from tests.unit.operators.test_performer import CONFIG, archived

TEXT = """
from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource

def asked(record, key):
    raise AssertionError("no request is made")

class Count(Operator):
    def process(self, record, ctx):
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"key": ctx.key, "n": n, "at": ctx.now(), "dice": ctx.random.random()}

pipeline = Pipeline("test")
numbers = pipeline.source("in", GeneratedSource(lambda p, i: {"k": i % 7, "v": i}, count=10_000))
counts = numbers.map("double", lambda row: {**row, "v": 2 * row["v"]}).key_by(lambda row: row["k"])
counts.process("count", Count()).sink("out", JsonLinesSink("out"))
"""
STEPS = [Step(10**18 + 10**7 * number, "in", 0, 10 * number, 10 * number + 10) for number in range(200)]


def compared(
    directory: Path,
    change: Callable[[str], str],
    text: str = TEXT,
    steps: Sequence[Step] = STEPS,
    recorded: Path | None = None,
    rule: str = REFUSE,
) -> Outcome:
    """Compare a pipeline with a changed one."""
    before, checkpoint = archived(directory / "a", {}, text)
    after, _ = archived(directory / "b", {}, change(text))
    scene = Scene(checkpoint, directory, recorded, rule, lambda: steps)
    versions = Version(CONFIG, before), Version(CONFIG, after)
    return compare(*versions, scene, lambda sink, row: RowKey(FIELD, ("key",)))


def test_unchanged_code_does_not_differ(tmp_path: Path) -> None:
    outcome = compared(tmp_path, lambda text: f"# the same\n{text}")
    assert not outcome.differs and outcome.performed == 2000 and outcome.divergence is None
    assert outcome.comparison.sinks["out"].same == 2000


def test_a_change_is_found_where_it_begins(tmp_path: Path) -> None:
    outcome = compared(tmp_path, lambda text: text.replace('"n": n,', '"n": n + (ctx.key == 3 and n > 100),'))
    sink = outcome.comparison.sinks["out"]
    assert outcome.differs and sink.pairs.changed == 2000 // 7 + 1 - 100 and not sink.only_after
    assert set(sink.pairs.keys) == {"3"} and set(sink.pairs.fields) == {"n"}
    first = outcome.divergence
    assert first is not None and first.operator == "count" and not first.added
    assert first.place.endswith("b/pipeline.py:10") and first.key == "3"
    assert first.record == repr({"k": 3, "v": 2 * (100 * 7 + 3)})
    assert "'n': 101," in first.before[0] and "'n': 102," in first.after[0]


def test_an_operator_that_is_new_is_the_first_to_differ(tmp_path: Path) -> None:
    added = 'numbers.filter("few", lambda row: row["v"] < 1500).map("double"'
    outcome = compared(tmp_path, lambda text: text.replace('numbers.map("double"', added))
    assert outcome.added == ["few"] and outcome.comparison.sinks["out"].only_before == 500
    assert outcome.divergence is not None and outcome.divergence.operator == "few" and outcome.divergence.added


def test_a_failure_of_one_version_differs_and_of_both_does_not(tmp_path: Path) -> None:
    failing = TEXT.replace("        n = ctx", "        assert record['v'] < 1234, 'too high'\n        n = ctx")
    for place in "123":
        (tmp_path / place).mkdir()
    outcome = compared(tmp_path / "1", lambda text: failing)
    assert outcome.differs and list(outcome.failures) == [NEW]
    assert "too high" in outcome.failures[NEW] and outcome.performed == 610 and "position 610" in outcome.ended
    alike = compared(tmp_path / "2", lambda text: text, failing)
    assert not alike.differs and alike.alike and alike.performed == 610
    repaired = compared(tmp_path / "3", lambda text: TEXT, failing)
    assert repaired.differs and list(repaired.failures) == [RECORDED]


def test_only_the_sink_differs(tmp_path: Path) -> None:
    outcome = compared(tmp_path, lambda text: text.replace('JsonLinesSink("out")', 'Other("out")').replace(
        "pipeline = ", "class Other(JsonLinesSink):\n    def encode(self, records):\n        return "
        "super().encode([{**row, 'x': 1} for row in records])\npipeline = ", 1,
    ))  # fmt: skip
    assert outcome.comparison.sinks["out"].pairs.fields == {"x": 2000}
    assert outcome.divergence is not None and outcome.divergence.operator == ""


ASKING = TEXT.replace(
    'numbers.map("double", lambda row: {**row, "v": 2 * row["v"]})', 'numbers.call("ask", asked, combine=pick)'
).replace("pipeline = ", "def pick(record, answer):\n    return answer\n\npipeline = ", 1)


def recorded_answers(path: Path, records: Sequence[Any], operator: str = "ask") -> Path:
    create(path, ((question_of_record(operator, None, each), encode([True, each])) for each in records))
    return path


def test_recorded_answers_serve_both_and_the_end_of_a_recording_is_no_difference(tmp_path: Path) -> None:
    known = recorded_answers(tmp_path / "answers", [{"k": i % 7, "v": i} for i in range(1000)])
    outcome = compared(tmp_path, lambda text: text, ASKING, recorded=known)
    assert not outcome.differs and outcome.performed == 2000
    assert outcome.comparison.sinks["out"].same == 1000


def test_a_request_that_is_not_recorded_is_refused_or_answered_by_a_function(tmp_path: Path) -> None:
    known = recorded_answers(tmp_path / "answers", [{"k": i % 7, "v": i} for i in range(2000)])

    def other(text: str) -> str:
        doubled = '"v": 9000 if row["v"] == 700 else row["v"]'
        return text.replace('numbers.call("ask"', f'numbers.map("d", lambda row: {{**row, {doubled}}}).call("ask"')

    outcome = compared(tmp_path, other, ASKING, recorded=known)
    assert outcome.differs and "makes a request that has no recorded answer" in outcome.failures[NEW]
    assert "'v': 9000" in outcome.failures[NEW] and outcome.performed == 700
    (tmp_path / "calls.py").write_text("def ask(record, key):\n    return {**record, 'v': record['v'] // 2}\n")
    (tmp_path / "2").mkdir()
    answered = compared(tmp_path / "2", other, ASKING, recorded=known, rule=str(tmp_path / "calls.py"))
    assert not answered.failures and answered.performed == 2000


CALLING = TEXT.replace('"at": ctx.now(), ', '"at": ctx.call(lambda at: at, ctx.now()), ').replace(
    "class Count", "def answer(at):\n    raise AssertionError('no request is made')\n\nclass Count"
)


def test_both_versions_have_the_same_answer_to_a_request_that_the_recording_does_not_have(tmp_path: Path) -> None:
    """The argument is a time, which is another one in a performance; the new code gets the answer of the recorded."""
    (tmp_path / "calls.py").write_text("calls = []\ndef count(at):\n    calls.append(at)\n    return len(calls)\n")
    outcome = compared(tmp_path, lambda text: text, CALLING, rule=str(tmp_path / "calls.py"))
    assert not outcome.differs and outcome.comparison.sinks["out"].same == 2000
    (tmp_path / "2").mkdir()
    ended = compared(tmp_path / "2", lambda text: text, CALLING)
    assert not ended.differs and not ended.performed and RECORDED in ended.ended
