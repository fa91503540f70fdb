"""The form of rows as messages: value, key, headers, and what no message can carry."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from causal.errors import PipelineError
from causal.records.values import NotCarried
from operators.sinks import KafkaSink
from operators.sinks.kafka.side_topics import account_topic
from operators.sinks.messages.message_rows import rows_in

SCHEMA = {
    "type": "record",
    "name": "Total",
    "fields": [
        {"name": "k", "type": "string"},
        {"name": "n", "type": "int"},
        {"name": "share", "type": ["null", "float"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}, "default": 0},
    ],
}


def message(record: Any, **options: Any) -> list[Any]:
    sink = KafkaSink("127.0.0.1:1", "orders", **options)
    [row] = rows_in(sink.encode([record]))
    return list(row)


def test_values_of_each_form() -> None:
    assert message({"a": "ü", "b": (1, None)})[1] == '{"a": "ü", "b": [1, null]}'.encode()
    assert message("ü\n", encode="text")[1] == "ü\n".encode()
    assert message(b"\xff", encode="bytes")[1] == b"\xff"
    assert message({"v": 1}, encode=lambda r: f"v{r['v']}")[1] == b"v1"
    assert message({"v": 1}, encode=lambda r: None, key=lambda r: r["v"])[:2] == [b"1", None]


def test_avro_is_read_back_by_its_schema() -> None:
    import io

    fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed (extra kafka)")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    _, value, _ = message({"k": "a", "n": 7, "at": at}, encode="avro", schema=SCHEMA)
    read = fastavro.schemaless_reader(io.BytesIO(value or b""), fastavro.parse_schema(SCHEMA), None)
    assert read == {"k": "a", "n": 7, "share": None, "at": at}


@pytest.mark.parametrize(
    "record",
    [
        {"k": "a"}, {"k": "a", "n": 1 << 40}, {"k": "a", "n": True}, {"k": "a", "n": 1, "more": 2}, {"k": 7, "n": 1},
        {"k": "a", "n": 1, "share": 0.1}, {"k": "a", "n": 1, "at": datetime(2026, 1, 1)}, [1], None, "text",
        {"k": "a", "n": Decimal(1)},
    ],
)  # fmt: skip
def test_what_avro_would_change_or_lacks_fails_its_record(record: Any) -> None:
    pytest.importorskip("fastavro", reason="fastavro is not installed (extra kafka)")
    with pytest.raises(NotCarried, match="the Avro schema"):
        message(record, encode="avro", schema=SCHEMA)


@pytest.mark.parametrize(
    ("record", "options", "words"),
    [
        (b"x", {"encode": "text"}, "a bytes is no text"),
        ("x", {"encode": "bytes"}, "a str is not bytes"),
        ("\ud800", {"encode": "text"}, "unpaired surrogate"),
        (1, {"encode": lambda r: r}, "encode gave a int; return bytes, text or None"),
        ({}, {"headers": lambda r: [1]}, "headers gave a list; return a dict"),
        ({}, {"headers": lambda r: {"task": "x"}}, "a header is named 'task'"),
        ({}, {"headers": lambda r: {"x": 1}}, "header 'x' is a int; use text or bytes"),
        ({}, {"key": lambda r: {(1, 2): 3}}, "a key that is a tuple"),
    ],
)
def test_what_no_message_carries_fails_its_record(record: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(NotCarried, match=words):
        message(record, **options)


def test_keys_and_headers() -> None:
    assert message(1, key=lambda r: "ü")[0] == "ü".encode()
    assert message(1, key=lambda r: b"\x00")[0] == b"\x00"
    assert message(1, key=lambda r: (1, "a"))[0] == b'[1, "a"]'
    assert message(1)[0] is None
    assert message(1, headers=lambda r: {"a": "ü", "b": b"\x00", "c": None})[2] == [
        ["a", "ü".encode()],
        ["b", b"\x00"],
        ["c", None],
    ]


def test_a_refused_row_is_shown_as_json() -> None:
    sink = KafkaSink("127.0.0.1:1", "orders", key=lambda r: r["k"], headers=lambda r: {"h": b"\xff"})
    rows = sink.encode([{"k": "a"}, {"k": "b"}])
    assert sink.shown_row(rows, 1) == {"key": "b", "value": {"k": "b"}, "headers": {"h": "ff"}}
    plain = KafkaSink("127.0.0.1:1", "orders")
    assert plain.shown_row(plain.encode([{"k": "a"}]), 0) == {"k": "a"}


def test_an_invalid_schema_is_refused() -> None:
    pytest.importorskip("fastavro", reason="fastavro is not installed (extra kafka)")
    with pytest.raises(PipelineError, match="the Avro schema is invalid"):
        KafkaSink("127.0.0.1:1", "orders", encode="avro", schema={"type": "nothing"})


def test_side_topics_have_names_that_kafka_accepts_and_that_no_two_tasks_share() -> None:
    tasks = ["out/0", "out-0/1", "out/10", "out 0/1", "out_200/1", "aus gäng/0"]
    names = [account_topic("orders", task) for task in tasks]
    assert names[0] == "orders.causal.out-0" and len(set(names)) == len(names)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-") for name in names)
    with pytest.raises(PipelineError, match="give the sink a shorter name"):
        account_topic("o" * 240, "out/0")
