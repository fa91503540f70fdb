"""The recipe of the cookbook from NATS to NATS: every process and the server are killed, and each row is compared."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from benchmarks.servers.nats import Nats
from causal.errors import PipelineError
from deploy import doctor
from operators.outputs import open_output
from tests.docs.recipes import CHECKS, Page
from tests.faults.conftest import Start
from tests.faults.job import Job

EACH = 200
"""The bookings between two kills."""


def test_each_balance_is_there_once_whatever_dies(own_nats: Nats, start: Start, tmp_path: Path) -> None:
    page, server = Page("nats_balances"), own_nats
    assert page.includes_its_program()
    server.create("bookings")
    bookings: list[dict[str, Any]] = []

    def put() -> None:
        more = [{"booking": n, "customer": f"c{n % 7}", "cents": n * 37 % 200 - 80} for n in numbers()]
        bookings.extend(more)
        server.put("bookings.shop", *(json.dumps(each).encode() for each in more))

    def numbers() -> range:
        return range(len(bookings), len(bookings) + EACH)

    def until_all_are_written(job: Job) -> None:
        job.until(f"{len(bookings)} balances", lambda view: len(balances(server)) >= len(bookings))

    put()
    job = start(page.program, *page.arguments, *sets(servers=server.address), config={"checkpoint_interval_s": 0.3})
    job.until_killed()
    until_all_are_written(job)
    for tasks in (["bookings/0"], ["out/0"], ["balance/1", "out/0"]):
        put()
        job.replace(*tasks)
        until_all_are_written(job)
    put()
    with server.down():
        job.strike("bookings/0", "out/0")
    put()
    until_all_are_written(job)
    job.until("a checkpoint covers the input", lambda view: lag(view) == 0 and view["checkpoint"]["count"] > 0)
    job.kill_everything()
    put()
    job.start("--resume")
    until_all_are_written(job)
    rows = balances(server)
    CHECKS["nats_balances"]({"bookings": bookings}, {"out": sorted(rows, key=lambda row: row["booking"])})
    assert {row.subject for row in server.rows("balances") if "task" in row.headers} == {
        f"balances.c{n}" for n in range(7)
    }
    check_read_back(server, rows)

    job.kill_everything()
    put()
    server.api("STREAM.PURGE.bookings")
    job.start("--resume")
    status, said = job.finish()
    assert (status, "stream bookings has lost the messages from sequence" in said) == (1, True), said


def balances(server: Nats) -> list[dict[str, Any]]:
    """Return the rows of the job, each of which must have a place of its own."""
    if "error" in server.api("STREAM.INFO.balances"):
        return []
    rows = [row for row in server.rows("balances") if "task" in row.headers]
    places = [(row.headers["task"], int(row.headers["position"])) for row in rows]
    assert sorted(places) == [("out/0", position) for position in range(len(rows))], "no row is lost or comes again"
    return [json.loads(row.value) for row in rows]


def lag(view: dict[str, Any]) -> int:
    return sum(int(task["figures"].get("input_lag", 1)) for task in view["tasks"] if task["source"])


def check_read_back(server: Nats, rows: list[dict[str, Any]]) -> None:
    """Check that a reader of outputs gets the same rows."""
    output = open_output(f"nats://{server.address}/balances")
    output.look()
    assert output.ends(uncovered=True) == {"out/0": len(rows)} and not output.ended and output.run
    pieces = list(output.rows("out/0", 3, len(rows) - 1, output.hint("out/0", 3)))
    assert [json.loads(text) for _, texts in pieces for text in texts] == rows[3:-1]
    assert [position for positions, _ in pieces for position in positions] == list(range(3, len(rows) - 1))


def test_an_output_that_is_none_is_one_line(shared_nats: Nats) -> None:
    shared_nats.create("foreign")
    for url, words in ((f"nats://{shared_nats.address}/foreign", "has no rows of a NatsSink"),):
        with pytest.raises(PipelineError, match=words):
            open_output(url).look()


def test_the_doctor_asks_a_server(shared_nats: Nats, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, subject, text = doctor.nats(shared_nats.address)
    assert (status, subject) == (doctor.OK, "NATS") and "with JetStream and atomic batches" in text
    status, _, text = doctor.nats("127.0.0.1:1")
    assert status == doctor.WRONG and "cannot be reached" in text
    asked = argparse.Namespace(state_dir=str(tmp_path), port=[], kafka="", objects="", nats=shared_nats.address)
    doctor.run(asked)
    assert f"NATS at {shared_nats.address}: with JetStream" in capsys.readouterr().out
