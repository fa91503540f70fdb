"""A host with a key that the supervisor does not have, or with another key of the supervisor, says so in one line."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from causal.errors import PipelineError, Unavailable
from causal.network.curve import new_key
from causal.network.roster import KeyPair, save_key
from causal.network.seats import Seat
from standby.network import description
from standby.network.description import Inquiry
from standby.network.gate import Gate
from tests.unit.standby.test_gate import DESCRIPTION, TERM, serve_until

OWN, SUPERVISOR = new_key("b"), new_key("supervisor")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    save_key(tmp_path, SUPERVISOR)
    with zmq.Context() as context:
        gate = Gate(context, "tcp://127.0.0.1:0", SUPERVISOR, [tmp_path / "hosts.toml"], DESCRIPTION, TERM)
        yield gate
        gate.close()


def answered(
    gate: Gate, known: KeyPair, until: Callable[[str], bool] = lambda line: False, own: KeyPair | None = OWN
) -> list[str]:
    """Return the lines that the host b says, the last one that with which it ends; it gives up after one that is
    enough.
    """
    lines: list[str] = []
    inquiry = Inquiry([Seat("supervisor", gate.socket.last_endpoint.decode(), known.public)], "b", own)

    def ask() -> None:
        try:
            inquiry.answer(lines.append, lambda: not any(map(until, lines)))
        except (PipelineError, Unavailable) as problem:
            lines.append(str(problem))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    serve_until(gate, lambda: not asking.is_alive())
    return lines


@pytest.mark.parametrize("rostered", [new_key("b"), new_key("c")], ids=["another key of b", "no key of b"])
def test_a_wrong_key_is_refused_with_what_to_do(gate: Gate, tmp_path: Path, rostered: KeyPair) -> None:
    save_key(tmp_path, rostered)
    gate.revoked()  # it looks at the roster
    assert answered(gate, SUPERVISOR)[-1] == (
        f"the supervisor at {gate.socket.last_endpoint.decode()} refuses the key of b, or has another key than "
        "this host expects: the supervisor's hosts.toml must contain the table [b] of this host's file, and this "
        "host's file must contain the supervisor's table [supervisor]"
    )


def test_a_host_without_a_key_hears_that_it_needs_one(gate: Gate) -> None:
    assert answered(gate, SUPERVISOR, own=None)[-1] == (
        f"the supervisor at {gate.socket.last_endpoint.decode()} accepts only hosts with a key; pass --key "
        "NAME.key (create it with `causal keys new NAME`, and add its table to the supervisor's hosts.toml)"
    )


def test_a_host_that_waits_in_vain_with_another_key_of_the_supervisor_says_where_to_look(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(description, "PATIENCE_S", 0.5)
    save_key(tmp_path, OWN)
    gate.revoked()
    first, _ = answered(gate, new_key("supervisor"), lambda line: "waiting" in line)
    assert first.endswith(", which ends the connections: compare the key of [supervisor] in hosts.toml here and there")
