"""The testing kit: what it runs is the job, a crash is a crash, and it finds what a job would fail on."""

from __future__ import annotations

import itertools
import random
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from causal.errors import OperatorFailed, PipelineError, ReplayDivergence
from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink, SqliteSink
from operators.sources import GeneratedSource, SequenceSource, SparkSource
from operators.testing import At, OperatorTrial, every_crash, run

NUMBERS = list(range(1, 9))
ALL = {1: [1, 4, 7], 2: [2, 5, 8], 0: [3, 6]}


class Chained(Operator):
    """Each row says all that came before it in its key, the dice and the clock."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        before = ctx.state.get("seen", ())
        ctx.state["seen"] = (*before, record, ctx.random.randrange(1000))
        yield {"key": ctx.key, "seen": list(ctx.state["seen"]), "at": ctx.now()}


class Reminds(Operator):
    """Ten seconds after each record, says so."""

    def process(self, record: Any, ctx: Any) -> None:
        ctx.set_timer(ctx.now() + 10, f"about {record}")

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        yield (name, ctx.key, ctx.now())


COUNTER = itertools.count()


class Hidden(Operator):
    """Bypasses the services: its output depends on the process."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield next(COUNTER)


class Habitual(Operator):
    """Asks clock and chance as everybody does."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield (time.time(), random.random(), str(uuid.uuid4()))


def built(operator: Operator, parallelism: int = 2) -> Pipeline:
    pipeline = Pipeline("kit")
    numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: i + 1, 8))
    keyed = numbers.filter("all", lambda r: True).key_by(lambda r: r % 3)
    keyed.process("op", operator, parallelism=parallelism).sink("out", SqliteSink("/nowhere/out.db"))
    return pipeline


def chains(rows: list[Any]) -> dict[int, list[int]]:
    """Return the records after each key's rows; fails where a row does not extend the one before it."""
    longest: dict[int, list[Any]] = {}
    for row in rows:
        assert row["seen"][:-2] == longest.get(row["key"], []), row
        longest[row["key"]] = row["seen"]
    return {key: seen[::2] for key, seen in longest.items()}


def test_five_lines_in_a_test() -> None:
    result = run(built(Chained()), {"numbers": [1, 2, 4]}, crash={"op/0": 1})
    assert chains(result["out"]) == {1: [1, 4], 2: [2]} and result.recoveries == 1


@pytest.mark.parametrize("crash", every_crash(built(Chained())), ids=str)
def test_no_crash_shows(crash: dict[str, int]) -> None:
    each: list[dict[str, Any]] = [{}, {"determinant_flush": "background"}]
    for options in each:
        result = run(built(Chained()), {"numbers": NUMBERS}, crash=crash, seed=sum(crash.values()), **options)
        assert chains(result["out"]) == ALL
        assert result.recoveries == 1 and result.elements["out/0"] == 8


@pytest.mark.parametrize("seed", range(5))
def test_several_crashes_batches_and_no_checkpoint(seed: int) -> None:
    crash: dict[str, Any] = {"all/0": [2, 5], "op/0": 1, "op/1": [1, 1], "out/0": 6}
    result = run(built(Chained()), crash=crash, seed=seed, batch=1 + seed, checkpoint_every=seed % 2 * 3)
    assert chains(result["out"]) == ALL
    assert result.recoveries == 6


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    same = [run(built(Chained()), seed=3)["out"] for _ in range(2)]
    assert same[0] == same[1] != run(built(Chained()), seed=4)["out"]


def test_an_operator_behind_whose_back_there_is_chance_fails() -> None:
    assert len(run(built(Hidden()))["out"]) == 8
    with pytest.raises(ReplayDivergence, match=r"op/0"):
        run(built(Hidden()), crash={"op/0": 2}, checkpoint_every=0)


def test_hidden_nondeterminism_is_captured_or_refused_as_in_a_job() -> None:
    for crash in every_crash(built(Habitual()), {"numbers": [1, 2, 4]}):
        result = run(built(Habitual()), {"numbers": [1, 2, 4]}, crash=crash, clock_s=77)
        assert [at for at, _, _ in result["out"]] == [77.0] * 3
    with pytest.raises(OperatorFailed, match=r"operator 'op' calls time.time\(\): use ctx.now\(\)"):
        run(built(Habitual()), hidden_nondeterminism="refuse")
    assert time.time() > 1e9 and len(run(built(Habitual()))["out"]) == 8


def test_time_is_virtual() -> None:
    result = run(
        built(Reminds(), parallelism=1), {"numbers": [3, At(1000, 6), At(5000)]}, clock_s=100, crash={"op/0": 1}
    )
    assert result["out"] == [("about 3", 0, 110.0), ("about 6", 0, 1010.0)]
    assert result.clock_s == 5000
    assert result.determinant_bytes["timer"] > 0


def test_rows_are_the_records_and_dead_letters_are_there() -> None:
    pipeline = Pipeline("letters")
    source = pipeline.source("in", SequenceSource(lambda p, a, b: [], 0))
    source.map("inverse", lambda r: (r, 1 / r)).sink("out", JsonLinesSink("."))
    result = run(pipeline, {"in": [1, 0, 4]}, on_error="dead-letter", crash={"inverse/0": 2})
    assert result["out"] == [(1, 1.0), (4, 0.25)]
    (letter,) = result["dead-letters"]
    assert "ZeroDivisionError" in str(letter)
    with pytest.raises(OperatorFailed, match="inverse.*ZeroDivisionError"):
        run(pipeline, {"in": [1, 0, 4]})
    with pytest.raises(KeyError, match="sink 'else' does not exist; the sinks are out"):
        result["else"]


def test_a_path_is_loaded_with_its_settings(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "from operators import Pipeline\nfrom operators.sinks import JsonLinesSink\n"
        "from operators.sources import GeneratedSource\n"
        "pipeline = Pipeline('p')\nn = int(pipeline.settings.get('n', 1))\n"
        "pipeline.source('in', GeneratedSource(lambda p, i: i, n, rate=1)).sink('out', JsonLinesSink('.'))\n"
    )
    assert run(tmp_path / "p.py", settings={"n": "3"})["out"] == [0, 1, 2]


def test_partitions_have_lists_of_their_own() -> None:
    pipeline = Pipeline("two")
    pipeline.source("in", GeneratedSource(lambda p, i: (p, i), 2, 2)).sink("out", JsonLinesSink("."))
    assert sorted(run(pipeline)["out"]) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert sorted(run(pipeline, {"in": [["a", "b"], ["c"]]})["out"]) == ["a", "b", "c"]
    assert run(pipeline, {"in": ["a", "b"]})["out"] == ["a", "b"]


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("inputs name the source 'other', but pipeline 'kit' has numbers", {"inputs": {"other": []}}),
    ("inputs of source 'numbers' are a int; use a list", {"inputs": {"numbers": 3}}),
    (
        "lists in the inputs of source 'numbers' is 2, but its number of partitions is 1",
        {"inputs": {"numbers": [[1], [2]]}},
    ),
    ("inputs is 3; use a dict", {"inputs": 3}),
    ("crash names the task 'count/0', but pipeline 'kit' has all/0, op/0", {"crash": {"count/0": 1}}),
    ("crash of 'op/0' is at 0; use a number", {"crash": {"op/0": 0}}),
    ("the crash of 'op/0' at 99 never happened, because the task received", {"crash": {"op/0": 99}}),
    ("crash is ['in/0']; use a dict", {"crash": ["in/0"]}),
    ("settings is 'x'; use a dict", {"settings": "x"}),
    ("clock_s is None; use seconds since 1970, before 2255", {"clock_s": None}),
    ("clock_s is nan; use seconds", {"clock_s": float("nan")}),
    ("checkpoint_every is 'x'; use a number of records, or 0 for none", {"checkpoint_every": "x"}),
    ("checkpoint_every is -1; use a number of records", {"checkpoint_every": -1}),
    ("the test kit sets guarantee itself", {"guarantee": "none"}),
    ("unknown setting speed", {"speed": 1}),
    ("is too late", {"hidden_nondeterminism": "allow"}),
    ("the pipeline is a int; use a Pipeline, or the path of its file", {"pipeline": 3}),
]


@pytest.mark.parametrize(("message", "options"), REFUSED)
def test_mistakes_are_one_line(message: str, options: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match=re.escape(message)):
        run(**{"pipeline": built(Chained()), **options})


def test_a_source_that_only_the_outside_can_fill_needs_inputs() -> None:
    pipeline = Pipeline("spark")
    pipeline.source("rows", SparkSource(lambda spark: None)).sink("out", JsonLinesSink("."))
    with pytest.raises(PipelineError, match="source 'rows' is unbounded; use inputs"):
        run(pipeline)
    assert run(pipeline, {"rows": [{"a": 1}]})["out"] == [{"a": 1}]


class KeepsASet(Operator):
    """Keeps what no checkpoint can hold."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state.setdefault("seen", set()).add(record)
        yield len(ctx.state["seen"])


@pytest.mark.parametrize("checkpoint_every", [None, 0])
def test_state_that_cannot_be_checkpointed_fails_after_few_records_too(checkpoint_every: int | None) -> None:
    pipeline = Pipeline("p")
    stream = pipeline.source("in", GeneratedSource(lambda partition, i: i, count=1))
    stream.key_by(lambda r: r).process("op", KeepsASet()).sink("out", JsonLinesSink("out"))
    with pytest.raises(OperatorFailed, match="operator 'op', key 0: its state cannot be checkpointed: .* a set"):
        run(pipeline, checkpoint_every=checkpoint_every)
    trial = OperatorTrial(KeepsASet())
    assert trial.give(1, 2) == [1, 2]
    with pytest.raises(OperatorFailed, match="operator 'operator'.*: its state cannot be checkpointed: .* a set"):
        trial.finish()


def test_one_operator_by_hand() -> None:
    trial = OperatorTrial(Chained(), key=lambda r: r % 3, clock_s=5)
    (first,) = trial.give(1)
    assert (first["key"], first["seen"][0], first["at"]) == (1, 1, 5.0)
    trial.checkpoint()
    trial.give(2, 4)
    trial.crash()
    (last,) = trial.give(7)
    assert last["seen"][::2] == [1, 4, 7] and trial.result.recoveries == 1
    assert len(trial.out) == 4


def test_timers_of_one_operator() -> None:
    trial = OperatorTrial(Reminds())
    assert trial.give("a") == []
    trial.checkpoint()
    assert trial.advance(9) == []
    trial.crash()
    assert trial.advance(1) == [("about a", None, 10.0)]
    assert trial.clock_s == 10
    assert trial.give("b") == trial.finish() == []


def test_what_nobody_had_seen_may_go_another_way_after_a_crash() -> None:
    trial = OperatorTrial(Reminds())
    trial.give("a")
    trial.advance(9)
    trial.crash()  # the reading of the clock dies with the task, before anybody depends on it
    assert trial.advance(1) == []
    assert trial.advance(9) == [("about a", None, 19.0)]


def test_the_trial_finds_what_a_job_would_fail_on() -> None:
    trial = OperatorTrial(Hidden())
    trial.give(1, 2)
    with pytest.raises(ReplayDivergence, match="operator/0"):
        trial.crash()


class Closes(Operator):
    """Gives the sum of what came, when event time has passed a record's end."""

    def process(self, record: Any, ctx: Any) -> None:
        ctx.state["sum"] = ctx.state.get("sum", 0) + record["v"]
        ctx.set_timer(record["at"] + 10, "end", clock="event")

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        yield (ctx.key, ctx.state["sum"], ctx.watermark())


def test_watermarks_by_hand() -> None:
    trial = OperatorTrial(Closes(), key=lambda r: r["k"], time=lambda r: r["at"])
    assert trial.give({"k": "a", "v": 1, "at": 5}, {"k": "a", "v": 2, "at": 7}, {"k": "b", "v": 4, "at": 100}) == []
    assert trial.watermark(16.9) == []
    trial.crash()
    assert trial.watermark(17) == [("a", 3, 17.0)]
    assert trial.finish()[0][:2] == ("b", 4)
    with pytest.raises(PipelineError, match="has no event time; create OperatorTrial"):
        OperatorTrial(Closes()).watermark(1)
