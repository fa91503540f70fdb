"""`docs/wire.md` and `docs/determinants.md` say what the code does (header and kinds: `tests/docs`)."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from causal import determinants, inflight
from causal.channels import exchange, flow, output_queue, receiver, sender, wire
from causal.config import JobConfig
from causal.determinants import Clock, DeterminantCodec
from causal.logs import deltas
from causal.records import batch
from docs.tables import EXAMPLES

DOCS = Path(__file__).parents[3] / "docs"
WIRE = (DOCS / "wire.md").read_text()
CONFIG = JobConfig(run="r", name="n", pipeline="p")
DETERMINANTS = (DOCS / "determinants.md").read_text()


def table(text: str, first: str) -> list[list[str]]:
    """Return the rows of the table whose header row begins with the column `first`."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith(f"| {first} |"):
            break
    next(lines)
    rows: list[list[str]] = []
    for line in lines:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.replace("`", "").strip("|").split("|")])
    return rows


def test_chunks_are_those_of_the_page() -> None:
    behind = WIRE[WIRE.index("**Payload**") :]
    documented = {int(number): name for name, number, *_ in table(behind, "chunk")}
    assert documented == {getattr(batch, name): name for name in ("RECORDS", "BARRIER", "END", "WATERMARK")}
    assert batch.pack_chunks([batch.barrier(3)]) == struct.pack("<BIIq", 2, 1, 8, 3)


def test_limits_are_those_of_the_page() -> None:
    documented = dict(table(WIRE, "limit"))
    assert documented == {
        "frame, all parts; also plain_bytes": f"{wire.FRAME_BYTES_MAX >> 20} MiB",
        "what an LZ4 block may claim": f"{determinants.LZ4_RATIO_MAX} × its length",
        "a chunk: what one batch was made into for one channel": f"{output_queue.CHUNK_BYTES_MAX >> 20} MiB",
        "a record, encoded": f"record_bytes_max ({CONFIG.record_bytes_max >> 20} MiB)",
        "deltas in a frame, dependencies in a frame": f"{deltas.DELTAS_PER_FRAME_MAX:,}",
        "payload gathered into one frame while the peer does not keep up, or when it is sent again": (
            f"{output_queue.FRAME_BYTES_TARGET >> 10} KiB, or one chunk"
        ),
        "bytes outstanding without credit": (
            f"channel_window_bytes ({CONFIG.channel_window_bytes >> 20} MiB) and one frame"
        ),
    }
    assert f"more than {exchange.DELTA_BYTES_TARGET >> 20} MiB travel ahead" in WIRE
    assert f"at most {exchange.FAULT_SORTS_MAX} sorts" in WIRE
    assert f"at most every {receiver.RESYNC_NOT_BEFORE_NS // 1_000_000} ms" in WIRE
    assert f"of at most {inflight.ORIGINS_APART_NS_MAX // 1_000_000} ms apart" in WIRE
    assert exchange.CORRUPT_FRAMES_MAX == 5 and "the fifth in a row is a `ReplayDivergence`" in WIRE
    assert f"within {flow.CREDIT_WITHIN_NS // 1_000_000} ms" in WIRE
    assert f"Repeated after {sender.HELLO_AGAIN_NS // 1_000_000} ms" in WIRE
    assert f"no credit for {sender.PROBE_AFTER_NS // 1_000_000_000} s" in WIRE


def test_control_bodies_are_those_of_the_page() -> None:
    for kind in (wire.Hello, wire.Welcome):
        (fields,) = re.findall(rf"\*\*{kind.__name__.upper()}\*\*: `\[(.*?)\]`", WIRE)
        assert fields.split(", ") == list(kind.__slots__)


def test_examples_are_what_the_codec_writes_and_reads() -> None:
    rows = table(DETERMINANTS, "entry")
    assert len(rows) == len(EXAMPLES)
    assert {example.kind for _, example in EXAMPLES} == set(determinants.KINDS) - {"user"}
    writer, reader = DeterminantCodec(), DeterminantCodec()
    for (entry, encoded), (_, example) in zip(rows, EXAMPLES, strict=True):
        assert entry.split(",")[0] == example.kind
        assert writer.encode(example).hex(" ") == encoded
        assert reader.decode(bytes.fromhex(encoded), 0) == (example, len(bytes.fromhex(encoded)))


TAGS = {
    "clock": determinants.CLOCK,
    "random": determinants.RANDOM,
    "window": determinants.WINDOW,
    "timer": determinants.TIMER,
    "barrier": determinants.BARRIER,
    "run": determinants.RUN,
}
ANSWERS = {("call", determinants.CALL), ("call", determinants.CALL_LZ4)} | {
    ("answer", determinants.ANSWER),
    ("answer", determinants.ANSWER_LZ4),
}


def test_kinds_and_tags_are_those_of_the_page() -> None:
    rows = table(DETERMINANTS, "kind")
    assert {row[0] for row in rows} == set(determinants.KINDS)
    documented = {(kind, int(tag.split("–")[0], 16)) for kind, tag, *_ in rows}
    wanted = set(TAGS.items()) | ANSWERS
    assert documented == wanted | {("order", 0x20), ("order", 0x80), ("order", 0xFF), ("user", determinants.USER_FIRST)}
    assert f"{determinants.USER_FIRST} to {determinants.USER_LAST}" in DETERMINANTS
    assert f"at most {determinants.ANSWER_BYTES_MAX >> 20} MiB" in DETERMINANTS


@pytest.mark.parametrize(("after_ns", "size"), [(1, 2), (1_000, 3), (1_000_000, 4), (100_000_000, 5)])
def test_a_reading_costs_what_the_page_says(after_ns: int, size: int) -> None:
    codec = DeterminantCodec()
    assert len(codec.encode(Clock(1_790_000_000_000_000_000))) == 10
    assert len(codec.encode(Clock(1_790_000_000_000_000_000 + after_ns))) == size
