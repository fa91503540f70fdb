"""Valid input for every decoder: the properties damage it, and the fuzzer begins with it.

`python -m tests.fuzz.seeds` writes it to corpus/<target>/, one small file each; test_corpus.py says when that is due.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from hashlib import sha1
from pathlib import Path
from typing import Any

from causal.channels import wire
from causal.config import STATE_FORMAT
from causal.cut import Cut
from causal.determinants import (
    Answer,
    Barrier,
    Call,
    Clock,
    Determinant,
    DeterminantCodec,
    Order,
    Random,
    Run,
    Timer,
    User,
    Window,
    register_kind,
)
from causal.ids import ChannelId, TaskIndex, TaskName
from causal.logs.deltas import DeltaWriter, pack_deltas
from causal.logs.log import LogDelta
from causal.logs.rollback import Rollback, TaskRollback
from causal.records import batch
from causal.records.rows import Counted
from causal.records.values import encode
from causal.sealed import unseal
from causal.storage.files import write_parts
from causal.storage.framing import framed
from causal.storage.object_journal import Record
from causal.topology import Channel, Task, Topology
from operators.ingest.contract import Manifest, Segment, digest_of
from operators.state.keyed_tables import StateTable
from operators.state.snapshot_parts import ChainSnapshot
from standby.blueprint import Blueprint, CompanionCall
from standby.network.control import pack
from standby.storage.manifests import write_manifest
from tests.fuzz.decoders import JOB, SEGMENT

CORPUS = Path(__file__).with_name("corpus")

VALUES: list[Any] = [
    None,
    [True, -1, 2**40, 1.5, "zwölf", b"\x00\xff"],
    {"a": {1: (2, [3, ()])}, (1, "k"): Decimal("1.10"), None: 2**80},
    [datetime(2026, 1, 2, 3, 4, 5, 6), datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=-3)), fold=1)],
    [[[[[]]]], "x" * 40, list(range(20)), -(2**70)],
]
DELTAS = [LogDelta(0, 0, 0, b"\x80\x01"), LogDelta(3, 2, 300, b"\x81\x05\x01\x02"), LogDelta(1, 0, 1, b"")]
EXTENTS = [(0, 0, 2), (3, 2, 304), (200, 1, 70_000)]
LOG: list[Determinant] = [
    Random(bytes(range(16))),
    Order(0, 3),
    Clock(1_700_000_000_000_000_000),
    Call(b"an answer"),
    Order(130, 300),
    Timer(1_700_000_001_000_000_000),
    Window(2, 1_700_000_002_000_000_000, ((0, 5), (9, 1))),
    Call(b"the same again and " * 40),
    Answer(1, 300, b"an answer"),
    Answer(0, 2, b"the same again and " * 40),
    Run(12),
    User("fuzzed", b"mine"),
    Barrier(4),
]


RECORDS: list[Any] = [[], [1, "two"], [(1, "a"), (2, "b")], [(None,)] * 5, Counted(["a", (1, "b")], [3, 1])]


def _chunks() -> list[batch.Chunk]:
    rows = [(n, f"key {n % 3}", n / 2) for n in range(6)]
    bodies = [batch.encode_records(rows), batch.encode_records([{"n": 1}, "text"])]
    chunks = [batch.Chunk(batch.RECORDS, count, body) for count, body in zip((6, 2), bodies)]
    return [*chunks, batch.watermark(123), batch.end(), batch.barrier(2)]


def _determinants() -> list[bytes]:
    register_kind("fuzzed", 90)
    codec = DeterminantCodec()
    entries = [codec.encode(determinant) for determinant in LOG]
    return [b"".join(entries), *(DeterminantCodec().encode(determinant) for determinant in LOG)]


HELLOS = [wire.Hello(1, 0, 0, 0, False), wire.Hello(7, 100, 2**33, 2**64 - 1, True)]
WELCOMES = [
    wire.Welcome(1, 0, 0, [], [], []),
    wire.Welcome(2, 9, 2**64 - 1, EXTENTS, DELTAS, EXTENTS[:1], 5),
]


def _session() -> bytes:
    """Return the deltas of all frames of one session, one after the other."""
    writer, packed = DeltaWriter(), b""
    for offset, piece in ((0, b"\x80\x01"), (2, b"\x01"), (3, b"\x01\x01"), (5, b"\x80\x02" * 10)):
        logs = [LogDelta(task, 1, offset, piece) for task in range(10)]
        packed += writer.pack(logs, [(11, 1, 300 * offset), (12, 1, offset)])
    return packed


def _payloads() -> list[bytes]:
    payloads = []
    for compress, plain in ((False, batch.pack_chunks(_chunks())), (True, b"again " * 400)):
        header = wire.Header(wire.DATA, JOB, 0, 1)
        _, packed = wire.pack_payload(header, plain, compress)
        payloads.append(bytes((header.flags,)) + header.plain_bytes.to_bytes(4, "little") + packed)
    return payloads


def _frames() -> list[bytes]:
    frames = []
    for compress, plain in ((False, batch.pack_chunks(_chunks())), (True, batch.pack_chunks(_chunks()[:1] * 12))):
        header = wire.Header(wire.DATA, JOB, 1, 1, 2, 3, 10, 40, 77, 5)
        first, packed = wire.pack_payload(header, plain, compress)
        frames.append([first, pack_deltas(DELTAS, EXTENTS), packed])
    frames.append([wire.Header(wire.HELLO, JOB, 1, 1).pack(), HELLOS[1].pack(), b""])
    frames.append([wire.Header(wire.WELCOME, JOB, 1, 1).pack(), WELCOMES[1].pack(), b""])
    frames.append([wire.Header(wire.LOGS, JOB, 1, 1).pack(), pack_deltas(DELTAS, []), b""])
    frames.append([wire.Header(wire.CREDIT, JOB, 1, 1, position=9).pack(), b"", b""])
    plain = batch.pack_chunks(_chunks())
    inner = wire.Header(wire.DATA, JOB, 1, 1, 2, 3, 10, 40, 77, 5, len(plain))
    echo = wire.Header(wire.ECHO, JOB, 1, 1, 1, 0, 1, 3, 77, plain_bytes=len(plain))
    frames.append([echo.pack(), pack_deltas(DELTAS, EXTENTS), inner.pack() + plain])
    return [bytes((len(a),)) + len(b).to_bytes(2, "little") + a + b + c for a, b, c in frames]


def _snapshot_parts() -> list[bytes]:
    values: dict[Any, Any] = {"a": {"n": 1}, 2: {"list": [1, (2,)]}, "gone": {}}
    snapshot = ChainSnapshot(True, {"epoch": 3}, [StateTable("count", "count", 4, values).snapshot(True)])
    while not snapshot.step(10):
        continue
    return list(snapshot.parts())


def _files() -> list[bytes]:
    files = []
    with tempfile.TemporaryDirectory() as directory:
        for parts in ([], [b"one"], [Cut(3).pack(), b"", b"x" * 100]):
            write_parts(Path(directory) / "a.snap", parts, durable=False)
            files.append((Path(directory) / "a.snap").read_bytes())
    return files


def _ingest_manifests() -> list[bytes]:
    segments = (Segment("0000000000-00000-1-0-0.arrow", 0, 0, 7, digest_of(SEGMENT)), Segment("b.arrow", 1, 0, 2, "00"))
    manifests = []
    for manifest in (Manifest("q", 0, 1, "", 5, (0, 0), ()), Manifest("q", 0, 1, "0f", 5, (0, 9), segments)):
        text = json.dumps(asdict(manifest), sort_keys=True, separators=(",", ":")).encode()
        manifests.append(digest_of(text).encode() + b"\n" + text + b"\n")
    return manifests


def _controls() -> list[bytes]:
    files = [["checkpoints/a/e00000001-i1.snap", 10, "00ff"]]
    finding = {"settled": True, "orphan": [0, 1, 2], "stands": [[0, 1, 2], [1, 1, 5]]}
    beat = {"pid": 10, "endpoint": "ipc:///a", "incarnation": 2, "state": "running", "epoch": 3, "task": "a/0"}
    return [
        pack("beat", **beat, acked=[3, files], counters={"records_in": 5, "delta": {"order": 2.5}}, lost=[[0, 1, 2]]),
        pack("beat", **{**beat, "task": None}, followed=2, first_record_ns=9, last_output_ns=10, rollback=1),
        pack("phase", task="a/0", incarnation=2, phase="replayed", at_ns=5, detail=100),
        pack("snapshot", task="a/0", incarnation=2, epoch=3, files=files),
        pack("finding", task="a/0", incarnation=2, number=1, finding=finding),
        pack("failed", incarnation=2, error="ReplayDivergence", message="why", definite=True, task="a/0"),
        pack("started", slot="w1", pid=10, at_ns=5),
        pack("exited", slot="w1", pid=10, at_ns=5, status=-9, killed_ns=4, last_line="x", restarting=False),
        pack("agent_beat", slots={"w1": 10}, dead={"w2": None, "w3": 1}, killed={"w3": 5}),
        pack("admin", verb="kill", arguments={"task": "a/0"}),
        b"\x82\xa4kind\xa4beat\xa3pid" + b"\x91" * 1000 + b"\x01",
    ]


def _manifests() -> list[bytes]:
    files = {"a/0": (("checkpoints/a-0/e00000003-i1.snap", 10, "00ff"),), "b/0": ()}
    with tempfile.TemporaryDirectory() as directory:
        write_manifest(Path(directory), 3, files, sync=False)
        return [(Path(directory) / "checkpoints" / "manifest-3.json").read_bytes()]


def _jobs() -> list[bytes]:
    """Return settings that `save` has not written: settings that are added later must not change the seeds."""
    least = {"run": "r", "name": "n", "pipeline": "/p.py", "format": STATE_FORMAT}
    more = {
        "settings": {"a": "b"},
        "guarantee": "none",
        "sharing_depth": 2,
        "checkpoint_interval_s": 0.5,
        "standbys": "3",
    }
    return [json.dumps(fields, indent=1).encode() for fields in (least, {**least, **more})]


def _blueprints() -> list[bytes]:
    tasks = tuple(Task(TaskIndex(i), TaskName(f"t/{i}"), ("a", "b")) for i in range(2))
    ends = [(-1, 0), (0, 1), (1, -1)]
    channels = tuple(Channel(ChannelId(i), TaskIndex(a), TaskIndex(b)) for i, (a, b) in enumerate(ends))
    some = Blueprint(Topology(tasks, channels), (CompanionCall("spark", ("x",), {"A": "b"}),), (("t/0", 1.5),))
    blueprints = []
    with tempfile.TemporaryDirectory() as directory:
        for each in (some, Blueprint(Topology((), ()))):
            each.save(Path(directory))
            fields = unseal(
                (Path(directory) / "topology.json").read_text()
            )  # with a digest nothing behind it is reached
            order = ("tasks", "channels", "companions", "kills", "worker")
            blueprints.append(json.dumps({name: fields[name] for name in order}, indent=1).encode())
    return blueprints


ROLLBACK = Rollback(2, ((1, 0, 3, 40), (2, 1, 3, 0)), {0: TaskRollback(3, {3: 40}), 2: TaskRollback(2)})


def seeds() -> dict[str, list[bytes]]:
    """Return seeds by decoder; each of them is read without an error."""
    return {
        "values": [encode(value) for value in VALUES],
        "records": [batch.encode_records(each) for each in RECORDS],
        "chunks": [b"", batch.pack_chunks(_chunks())],
        "determinants": _determinants(),
        "header": [
            wire.Header(wire.DATA, JOB, 3, 2, 4, 5, 6, 2**40, 2**63, 10**18, 1000, 1).pack(),
            *(wire.Header(kind, JOB, 1, 1).pack() for kind in wire.KINDS),
        ],
        "deltas": [b"", _session(), pack_deltas(DELTAS, []), pack_deltas([], EXTENTS), pack_deltas(DELTAS, EXTENTS)],
        "hello": [each.pack() for each in HELLOS],
        "welcome": [each.pack() for each in WELCOMES],
        "payload": _payloads(),
        "frame": _frames(),
        "cut": [Cut().pack(), Cut(3, {0: (5, 2**64 - 1, True), 9: (1, 2, False)}, {4: (7, 8)}, 99, True).pack()],
        "snapshot-part": _snapshot_parts(),
        "parts": _files(),
        "sink-journal": [b"", framed(b""), framed(encode({"epoch": 1})) + framed(b"rows\n" * 9)],
        "shared-record": [
            Record((1, 0), "a token", 0, kind, body).packed()
            for kind, body in (("state", b"state"), ("record", b""), ("seal", b""), ("void", b""))
        ],
        "ingest-manifest": _ingest_manifests(),
        "ingest-segment": [SEGMENT],
        "control": _controls(),
        "manifest": _manifests(),
        "job-config": _jobs(),
        "blueprint": _blueprints(),
        "rollback": [encode(None), encode(Rollback().message()), encode(ROLLBACK.message())],
    }


def name_of(data: bytes) -> str:
    """Return the file of a seed: named by its content, so that writing it again changes nothing."""
    return f"seed-{sha1(data).hexdigest()[:12]}"


def main() -> int:
    """Write the corpus; obsolete seeds are removed, inputs that the fuzzer has found stay."""
    for target, inputs in seeds().items():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        wanted = {name_of(data): data for data in inputs}
        for path in folder.glob("seed-*"):
            if path.name not in wanted:
                path.unlink()
        for name, data in wanted.items():
            (folder / name).write_bytes(data)
    print(f"{sum(map(len, seeds().values()))} seeds for {len(seeds())} decoders in {CORPUS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
