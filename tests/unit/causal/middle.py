"""One task between two neighbours, without a chain: both ends of a session, and what may arrive at them."""

from __future__ import annotations

from benchmarks.harness.graphs import layered
from causal.channels import wire
from causal.channels.ends import Channels
from causal.channels.exchange import Exchange
from causal.channels.frames import FRAMES
from causal.channels.receiver import Receiver
from causal.channels.rolling import RollingDigest
from causal.channels.sender import Sender
from causal.channels.wire import Header
from causal.config import JobConfig
from causal.cut import Cut
from causal.effects import Effect
from causal.logs.dissemination import Holdings
from causal.records import batch
from causal.records.batch import Chunk, encode_records

TOPOLOGY = layered((1, 1, 1))
CONFIG = JobConfig(run="r", name="n", pipeline="p")
JOB = CONFIG.fingerprint(TOPOLOGY)
MIDDLE = TOPOLOGY.tasks[1].index
(UPSTREAM,) = (c for c in TOPOLOGY.inputs(MIDDLE))
(DOWNSTREAM,) = (c for c in TOPOLOGY.outputs(MIDDLE))
LINK = b"link"
ANNOUNCED = 2
"""The incarnation of a neighbour; 1 is older, 3 is younger."""
RECORDS = Chunk(batch.RECORDS, 1, encode_records(["a"]))


class Middle:
    """A task with a sender upstream and a receiver downstream."""

    def __init__(self) -> None:
        self.reports: list[str] = []
        channels = Channels(TOPOLOGY, MIDDLE, CONFIG, Cut())
        self.exchange = Exchange(
            TOPOLOGY, MIDDLE, ANNOUNCED, CONFIG, Holdings(TOPOLOGY, MIDDLE, CONFIG.sharing_depth, 0),
            {c.id: c for c in channels.network}, channels.downstream, self.reports.append,
        )  # fmt: skip
        self.receiver: Receiver = self.exchange.inputs[UPSTREAM.id]
        self.sender: Sender = self.exchange.outputs[DOWNSTREAM.id]

    def receive(self, kind: int, incarnation: int, parts: list[bytes]) -> list[Effect]:
        rule = FRAMES[kind]
        channel = UPSTREAM.id if rule.from_upstream else DOWNSTREAM.id
        header = wire.read_header([header_of(kind, channel, incarnation).pack(), *parts], JOB)
        if kind == wire.DATA:
            header = data_header(channel, incarnation, parts[1])
        return self.exchange.receive(LINK if rule.from_upstream else b"", [header.pack(), *parts], True, 0)


def header_of(kind: int, channel: int, incarnation: int) -> Header:
    return Header(kind, JOB, channel, incarnation)


def data_header(channel: int, incarnation: int, payload: bytes) -> Header:
    digest = RollingDigest().feed(payload)
    return Header(wire.DATA, JOB, channel, incarnation, 1, 0, 1, 0, digest, 0, len(payload))
