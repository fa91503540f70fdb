"""Rows from Kafka to Kafka are verified, commits are found by the stable end, and ours is divided by the best peer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.connectors import through_kafka
from benchmarks.connectors.committed_rows import Commits, back_ms
from benchmarks.harness.runs import RunFailed
from benchmarks.peers import checks, comparison, venvs
from benchmarks.peers.programs import kafka_topics

EVENTS = 400


def rows() -> list[tuple[str, int]]:
    """Return the rows of a program that does what it should."""
    counts: dict[str, int] = {}
    counted = []
    for key, _, _ in kafka_topics.events(EVENTS):
        counts[key] = counts.get(key, 0) + 1
        counted.append((key, counts[key]))
    return counted


def test_the_rows_of_all_events_are_accepted() -> None:
    through_kafka.check_counts(rows(), EVENTS)


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[:-1],
        lambda rows: [*rows, rows[-1]],
        lambda rows: [*rows, ("k0", 1)],
        lambda rows: [*rows, (rows[-1][0], rows[-1][1] + 1)],
        lambda rows: [(key, 1) for key, _ in rows],
    ],
)
def test_wrong_rows_are_refused(change: Callable[[Any], Any]) -> None:
    with pytest.raises(checks.WrongOutput):
        through_kafka.check_counts(change(rows()), EVENTS)


def test_an_event_is_in_the_partition_of_its_key() -> None:
    partitions: dict[str, int] = {}
    for key, partition, message in kafka_topics.events(EVENTS):
        assert partitions.setdefault(key, partition) == partition and json.loads(message)["key"] == key
    assert set(partitions.values()) == {0, 1}


def test_a_row_is_committed_when_the_stable_end_is_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    commits = Commits.__new__(Commits)
    commits.moments_ns, commits.ends = [10, 20, 30], [0, 4, 5, 9]
    assert [commits.at_ns(offset) for offset in (0, 3, 4, 5, 8)] == [10, 10, 20, 30, 30]


def test_the_silence_after_a_kill_ends_with_the_first_new_row() -> None:
    ms = 1_000_000
    before = [at * ms for at in range(0, 1000, 5)]
    late = [1005 * ms, 1010 * ms]  # these had left the task when it was killed
    after = [at * ms for at in range(1060, 2000, 5)]
    assert back_ms([*before, *late, *after], 1001 * ms) == 59
    far = [*before, *late, *after, 2600 * ms]  # a longer silence long after the kill does not count
    assert back_ms(far, 1001 * ms) == 59
    with pytest.raises(RunFailed):
        back_ms(before, 1001 * ms)


SPEEDS = {"ours": 300.0, "quix_1": 50.0, "quix_2": 60.0, "confluent_1": 400.0, "confluent_2": 390.0}


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, dict[str, Any], list[str]]]:
    """Runs *rates* with invented speeds: (status, result, names of the runs in their order)."""

    @contextmanager
    def topics() -> Iterator[Any]:
        yield SimpleNamespace(servers="broker:1", create=lambda topic, partitions: topic)

    def measure(broken: str = "") -> tuple[int, dict[str, Any], list[str]]:
        names: list[str] = []

        def run_one(program: str, python: Path, asked: Any, limit_s: float, judge: Any) -> Any:
            name = asked["output"].rpartition("-")[0]
            names.append(name)
            if name == broken:
                raise checks.WrongOutput("the rows are wrong")
            return {"rps": SPEEDS[name], "cpu_us": 3.0, "peak_mib": 90.0, "start_s": 1.0}, {}

        monkeypatch.setattr(comparison, "run", run_one)
        monkeypatch.setattr(venvs, "interpreter", lambda *_: tmp_path)
        monkeypatch.setattr("benchmarks.servers.kafka.topics", topics)
        monkeypatch.setattr(through_kafka, "output_of", lambda *_: "")
        path = tmp_path / "outcome.json"
        status = main(["connectors", "--parts", "rates", "--rounds", "2", "--json", str(path)])
        return status, json.loads(path.read_text()) if path.exists() else {}, names

    return measure


def test_ours_is_divided_by_the_best_configuration_of_each_peer(measured: Any) -> None:
    status, result, names = measured()
    assert status == 0 and sorted(names[:5]) == sorted(SPEEDS) and names[5:] == names[4::-1]
    assert result["figures"]["ours_over_quix"]["runs"] == [5.0, 5.0]
    assert result["figures"]["ours_over_confluent"]["runs"] == [0.75, 0.75]


def test_a_peer_whose_rows_are_wrong_is_a_problem_and_ours_a_failure(measured: Any) -> None:
    status, result, _ = measured("quix_2")
    assert status == 0 and result["problems"] == {"quix_2": "the rows are wrong"}
    assert result["figures"]["ours_over_quix"]["runs"] == [6.0, 6.0]
    status, _, _ = measured("ours")
    assert status == 1
