"""Rows in a shared store that is a directory or a real S3 server: the kit, real races, and readers of any kind.

The client of the store has threads, so these checks fork nothing; deaths are in `tests/unit/sinks/test_objects.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from benchmarks.servers.s3 import S3
from causal.errors import CausalError, Fenced, PipelineError, Unavailable
from causal.storage.shared import Depot
from operators.outputs import open_output
from operators.sinks import JsonLinesSink
from operators.sinks.conformance import Subject, bundles, returning, successions, withdrawal
from operators.sinks.conformance.subject import expect_agreement, fill
from operators.sinks.objects.object_place import rows_in
from tests.members import members

CHECKS = (
    *bundles.CHECKS,
    successions.lets_no_older_run_come_back,
    *(check for check in withdrawal.CHECKS + returning.CHECKS if "killed" not in (check.__doc__ or "")),
)
ALWAYS = (bundles.holds_what_was_written, bundles.fences_zombies, successions.lets_no_older_run_come_back)


def read(url: str, task: str) -> list[Any]:
    try:
        output = open_output(url)
        output.look()
    except PipelineError:
        return []
    ends = output.ends(True)
    return [json.loads(text) for _, texts in output.rows(task, 0, ends.get(task, 0)) for text in texts]


def in_objects(url: str) -> list[Any]:
    """Return the rows that any program sees."""
    depot = Depot(url, "")
    output = open_output(url)
    output.look()
    names = [name for ranges in rows_in(depot, output.run).values() for _, _, name in ranges]
    return [json.loads(line) for name in names for line in depot.read(name).split(b"\n")[:-1]]


def lines(url: str, **options: Any) -> Subject:
    return Subject(JsonLinesSink(f"{url}/out", **options), lambda task: read(f"{url}/out", task))


@pytest.mark.parametrize("check", members(CHECKS, *ALWAYS), ids=lambda check: check.__name__)
def test_it_conforms(check: Callable[[Subject], None], url: str) -> None:
    check(lines(url, publish_s=1e-9))


def test_any_program_reads_whole_lines_each_once_and_all_of_them_at_the_end(url: str) -> None:
    subject = lines(url, file_bytes=500)
    store, state = subject.opened()
    seen = []
    for rows in range(10, 101, 10):
        state = fill(subject, store, state, rows)
        seen.append(in_objects(f"{url}/out"))
        assert read(f"{url}/out", "out/0")[: len(seen[-1])] == seen[-1]
    assert 0 < len(seen[5]) < 60
    store.close()
    assert in_objects(f"{url}/out") == read(f"{url}/out", "out/0")
    assert len(in_objects(f"{url}/out")) == 100
    assert len(Depot(f"{url}/out", "").names("_causal")) < 10


def test_of_processes_that_open_it_at_the_same_time_one_is_left_and_rows_are_exact(url: str) -> None:
    def process(incarnation: int) -> str:
        subject = lines(url, file_bytes=200)
        for _ in range(50):
            try:
                store, state = subject.opened(incarnation)
                fill(subject, store, state, 60, incarnation)
                store.close()
                return "all"
            except Unavailable:
                continue
            except Fenced:
                return "fenced"
        return "never"

    with ThreadPoolExecutor(4) as processes:
        outcomes = list(processes.map(process, [1, 2, 3, 4]))
    assert outcomes[-1] == "all"
    assert set(outcomes) <= {"all", "fenced"}
    subject = lines(url)
    store, state = subject.opened(5)
    assert state.next == 60
    expect_agreement(subject, state, "after a race")
    store.close()
    assert in_objects(f"{url}/out") == read(f"{url}/out", "out/0")


def test_a_store_that_does_not_answer_is_said_in_one_line(s3_here: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(PipelineError) as refusal:
        JsonLinesSink("s3://nowhere/out").check()
    line = str(refusal.value)
    assert line.startswith("JsonLinesSink: store s3://nowhere/out: ") and "\n" not in line
    assert line.endswith("; check the URL, the endpoint and the credentials")


def test_a_bucket_that_is_misspelt_is_said_in_one_line(s3_here: S3) -> None:
    with pytest.raises(PipelineError, match=r"^JsonLinesSink: store s3://misspelt/out: .*check the URL"):
        JsonLinesSink("s3://misspelt/out").check()


def test_what_is_damaged_is_named_and_not_used(url: str) -> None:
    subject = lines(url)
    store, state = subject.opened()
    fill(subject, store, state, 10)
    depot = Depot(f"{url}/out", "")
    name = depot.names("_causal/journals")[-1]
    depot.remove([name])
    depot.create(name, b"damaged")
    with pytest.raises(CausalError, match="is not a complete record"):
        subject.opened(2)
