"""A process with few descriptors that listens to other hosts, as the supervisor or as a task, and says how it is.

`python -m tests.unit.standby.flooded gate|transport FOLDER`: FOLDER has the keys `supervisor` and `b` and their roster.
Each message of `b` is answered with a JSON object.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from causal.network.roster import ROSTER, load_key, read_rosters
from causal.network.transport import Network, Transport
from standby.network.gate import Gate

DESCRIPTORS = 256
TASK = 7


def condition(refused: int) -> str:
    """Return the text of an answer: whether a file can be opened, and how many connections were closed."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
        opened = True
    except OSError:
        opened = False
    return json.dumps({"opened": opened, "refused": refused})


def serve_gate(context: zmq.Context[Any], folder: Path, ready: Callable[[str], None]) -> None:
    gate = Gate(context, "tcp://127.0.0.1:0", load_key(folder / "supervisor.key"), [folder / ROSTER], {}, 1)
    poller = zmq.Poller()
    for each in gate.sockets():
        poller.register(each, zmq.POLLIN)
    ready(gate.socket.last_endpoint.decode())
    while True:
        poller.poll()
        gate.authenticator.serve()
        for host, slot, _ in gate.receive(100):
            gate.send(host, slot, {"kind": "answer", "text": condition(gate.refused_connections)})


def serve_transport(context: zmq.Context[Any], folder: Path, ready: Callable[[str], None]) -> None:
    roster, _ = read_rosters([folder / ROSTER])
    network = Network("127.0.0.1", load_key(folder / "supervisor.key"), lambda: roster, lambda channel: TASK)
    poller = zmq.Poller()
    transport = Transport(context, "inproc://local", poller, network)
    transport.place(TASK, "tcp://b@127.0.0.1:1")
    ready(transport.remote)
    while True:
        for link, _ in transport.receive(dict(poller.poll())):
            transport.reply(link, [condition(transport.refused_connections).encode()])


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    serve = {"gate": serve_gate, "transport": serve_transport}[sys.argv[1]]
    serve(zmq.Context(), Path(sys.argv[2]), lambda endpoint: print(endpoint, flush=True))
