"""A host whose key the supervisor does not have ends with one line."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import zmq

from causal.errors import PipelineError
from causal.shell.curve import new_key
from causal.shell.roster import KeyPair, save_key
from causal.shell.seats import Seat
from standby.description import Inquiry
from standby.gate import Gate
from tests.unit.standby.test_gate import DESCRIPTION, TERM, serve_until

OWN, SUPERVISOR = new_key("b"), new_key("supervisor")


@pytest.mark.parametrize("rostered", [new_key("b"), new_key("c")], ids=["another key of b", "no key of b"])
def test_a_wrong_key_is_refused_with_what_to_do(tmp_path: Path, rostered: KeyPair) -> None:
    for key in (SUPERVISOR, rostered):
        save_key(tmp_path, key)
    refused: list[str] = []

    def ask(endpoint: str) -> None:
        try:
            Inquiry([Seat("supervisor", endpoint, SUPERVISOR.public)], "b", OWN).answer(lambda line: None)
        except PipelineError as problem:
            refused.append(str(problem))

    with zmq.Context() as context:
        gate = Gate(context, "tcp://127.0.0.1:0", SUPERVISOR, [tmp_path / "hosts.toml"], DESCRIPTION, TERM)
        try:
            endpoint = gate.socket.last_endpoint.decode()
            asking = threading.Thread(target=ask, args=(endpoint,), daemon=True)
            asking.start()
            serve_until(gate, lambda: not asking.is_alive())
        finally:
            gate.close()
    assert refused == [
        f"the supervisor at {endpoint} refuses the key of b, or has another key itself: its hosts.toml must have the "
        "table [b] of this host's, and this one's its [supervisor]"
    ]
