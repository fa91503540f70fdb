"""A host's first question: which versions of agents get a description, and what a wrong clock is answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from causal.errors import PipelineError
from causal.network.seats import Seat
from deploy.launching.host_agent import check_clock
from standby.network.control import pack, unpack
from standby.network.description import Description, Inquiry
from standby.network.gate import Gate
from standby.supervision import orders
from tests.unit.standby.stage import WAIT_S

OWN, TERM = 7, 3
DESCRIPTION = {"run": "r", "name": "job", "job": "{}", "graph": "{}"}


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    monkeypatch.setattr(orders, "PROTOCOL", OWN)
    with zmq.Context() as context:
        gate = Gate(context, "tcp://127.0.0.1:0", None, (), DESCRIPTION, TERM)
        yield gate
        gate.close()


def serve_until(gate: Gate, done: Any) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline_s
        gate.socket.poll(20)
        gate.authenticator.serve()
        list(gate.receive(10))


def answer_to(gate: Gate, version: object) -> dict[str, Any]:
    """Return the answer to the first question of an agent of that version."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as client:
        client.linger = 0
        client.setsockopt_string(zmq.IDENTITY, "join-b/1")
        client.connect(gate.socket.last_endpoint.decode())
        client.send_multipart([b"", pack("describe", protocol=version)])
        serve_until(gate, lambda: client.poll(0))
        return unpack(client.recv_multipart()[-1])


@pytest.mark.parametrize("version", [OWN, OWN - 1])
def test_an_agent_of_this_version_or_the_one_before_gets_the_description(gate: Gate, version: int) -> None:
    answer = answer_to(gate, version)
    assert (answer["kind"], answer["run"]) == ("description", "r")


@pytest.mark.parametrize(
    ("version", "what_to_do"),
    [
        (OWN + 1, "upgrade the supervisor first, then hosts one by one"),
        (OWN - 2, "upgrade causal-streams on this host"),
        (True, "upgrade causal-streams on this host"),
        ("7", "upgrade causal-streams on this host"),
        (None, "upgrade causal-streams on this host"),
    ],
)
def test_an_agent_of_another_version_is_refused_in_one_line(gate: Gate, version: object, what_to_do: str) -> None:
    answer = answer_to(gate, version)
    assert answer["kind"] == "refused"
    wanted = f"it speaks version {version!r} of the protocol of hosts, the supervisor 6 and 7; {what_to_do}"
    assert answer["reason"] == wanted


def test_the_first_version_has_none_before_it() -> None:
    refusal = orders.reason_to_refuse(0, 1)
    assert refusal is not None and "the supervisor 1;" in refusal
    assert orders.reason_to_refuse(1, 1) is None


def test_a_description_says_how_far_the_clock_of_the_host_is_ahead(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Description] = []
    now_ns = time.time_ns

    class Fast:
        """The modules' clock, on a host that is an hour ahead."""

        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def time_ns() -> int:
            return now_ns() + 3_600_000_000_000

    monkeypatch.setattr("standby.network.description.time", Fast)
    inquiry = Inquiry([Seat("", gate.socket.last_endpoint.decode())], "b", None)
    asking = threading.Thread(target=lambda: answers.append(inquiry.answer(lambda line: None)))
    asking.start()
    serve_until(gate, lambda: not asking.is_alive())
    asking.join()
    assert 3590 < answers[0].wall_ahead_s < 3610
    assert answers[0].term == TERM


@pytest.mark.parametrize(("ahead_s", "line"), [(61.0, "61.0 s ahead of"), (-7200.0, "7,200.0 s behind")])
def test_a_clock_that_is_far_off_is_refused_with_what_to_do(ahead_s: float, line: str) -> None:
    with pytest.raises(PipelineError) as refused:
        check_clock("b", ahead_s)
    assert str(refused.value) == (
        f"b: its clock is {line} the supervisor's; set the clock (NTP), then start `causal agent` again"
    )


def test_a_clock_that_is_a_little_off_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    check_clock("b", 0.5)
    check_clock("b", -3.0)
    assert capsys.readouterr().err.splitlines() == [
        "causal: b: its clock is 3.0 s behind the supervisor's: code that reads the time of day sees a jump "
        "when a task moves"
    ]
