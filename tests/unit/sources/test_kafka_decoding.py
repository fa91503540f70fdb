"""Values of each format as records; whatever is not one is `Unreadable`, with its offset and reason."""

from __future__ import annotations

import io
import json
import struct
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from causal.errors import PipelineError, Unavailable
from causal.records.unreadable import Unreadable
from operators.sources.kafka.kafka_decoding import Decoder, decoder_of
from operators.sources.kafka.kafka_schemas import Registry, schema_id, without_indexes

SAID = "p.py:1: KafkaSource"
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}, {"name": "t", "type": "string"}]}


class Message:
    """A message as confluent-kafka gives it."""

    def __init__(self, value: bytes | None, key: bytes | None = b"k", at_ms: int = 1500) -> None:
        self._value, self._key, self._at_ms = value, key, at_ms

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return self._key

    def headers(self) -> list[tuple[str, bytes]]:
        return [("a", b"1"), ("a", b"2")]

    def timestamp(self) -> tuple[int, int]:
        return (1, self._at_ms) if self._at_ms else (0, -1)

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 41


def record_of(value: bytes | None, decode: Any = "json", metadata: bool = False, key: bytes | None = b"k") -> Any:
    decoder = Decoder("t[3]", decoder_of(SAID, decode, None, None), decoder_of(SAID, "text", None, None), metadata, 100)
    return decoder.record(Message(value, key))


@pytest.mark.parametrize(
    ("decode", "value", "record"),
    [
        ("json", b'{"n": 1}', {"n": 1}),
        ("text", "ä".encode(), "ä"),
        ("bytes", b"\xff", b"\xff"),
        (len, b"abc", 3),
        ("json", None, None),
    ],
)
def test_values_become_records(decode: Any, value: bytes | None, record: Any) -> None:
    assert record_of(value, decode) == record


@pytest.mark.parametrize(
    ("decode", "value", "why"),
    [
        ("json", b"{", "DecodeError: Input data was truncated"),
        ("json", b"\xff", "UnicodeDecodeError"),
        ("text", b"\xff", "UnicodeDecodeError"),
        (lambda value: 1 / 0, b"x", "ZeroDivisionError: division by zero"),
        ("bytes", b"x" * 101, "a value of 101 bytes (value_bytes_max is 100)"),
    ],
)
def test_what_is_no_record_has_a_place_and_a_reason(decode: Any, value: bytes, why: str) -> None:
    record = record_of(value, decode)
    assert isinstance(record, Unreadable)
    assert (record.where, record.why[: len(why)]) == ("t[3]@41", why)


def test_metadata() -> None:
    assert record_of(b"1", metadata=True) == {
        "value": 1, "key": "k", "headers": {"a": b"2"}, "timestamp": 1.5, "partition": 3, "offset": 41,
    }  # fmt: skip
    assert record_of(b"1", metadata=True, key=None)["key"] is None
    assert record_of(b"1", metadata=True, key=b"\xff").why.startswith("its key: UnicodeDecodeError")
    plain = decoder_of(SAID, "json", None, None)
    assert Decoder("", plain, plain, True, 9).record(Message(b"1", None, 0))["timestamp"] is None


def test_avro_by_a_schema_and_by_a_registry() -> None:
    fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed (extra kafka)")
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(SCHEMA), {"n": 7, "t": "x"})
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        assert decoder_of(SAID, "avro", schema, None)(body.getvalue()) == {"n": 7, "t": "x"}
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers['Authorization']}")
            status = {"/schemas/ids/5": 200, "/schemas/ids/6": 404, "/schemas/ids/7": 401}.get(self.path, 503)
            answer = json.dumps({"schema": json.dumps(SCHEMA)}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Stay silent."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        registry = Registry(SAID, f"http://127.0.0.1:{server.server_port}/", "me:hunter2")
        decode = decoder_of(SAID, "avro", None, registry)
        for _ in range(2):
            assert decode(struct.pack(">BI", 0, 5) + body.getvalue()) == {"n": 7, "t": "x"}
        assert asked == ["/schemas/ids/5 Basic bWU6aHVudGVyMg=="]
        with pytest.raises(ValueError, match="has no schema 6"):
            decode(struct.pack(">BI", 0, 6))
        with pytest.raises(PipelineError, match="check registry_user") as refused:
            decode(struct.pack(">BI", 0, 7))
        assert "hunter2" not in str(refused.value)
        with pytest.raises(Unavailable, match="answers 503"):
            decode(struct.pack(">BI", 0, 8))
        server.shutdown()
    with pytest.raises(Unavailable, match="does not answer"):
        decode(struct.pack(">BI", 0, 9))
    with pytest.raises(ValueError, match="no number of a schema"):
        schema_id(b"\x01\x00\x00\x00\x05")


def test_protobuf_as_dicts() -> None:
    pytest.importorskip("google.protobuf", reason="protobuf is not installed (extra kafka)")
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.struct_pb2 import Struct

    field = FieldDescriptorProto(name="n", number=1 << 20, label=FieldDescriptorProto.LABEL_REPEATED)
    file = FileDescriptorProto(name="f", dependency=["a", "b"])
    file.extension.append(field)
    decode = decoder_of(SAID, "protobuf", FileDescriptorProto, None)
    record = decode(file.SerializeToString())
    assert (record["name"], record["dependency"], record["enum_type"]) == ("f", ["a", "b"], [])
    assert record["extension"] == [{"name": "n", "number": 1 << 20, "label": "LABEL_REPEATED"}]
    struct_of = Struct()
    struct_of.update({"b": True, "a": "x"})
    assert decoder_of(SAID, "protobuf", Struct, None)(struct_of.SerializeToString()) == {
        "fields": {"a": {"string_value": "x"}, "b": {"bool_value": True}}
    }
    framed = decoder_of(SAID, "protobuf", FileDescriptorProto, Registry(SAID, "http://r"))
    for indexes in (b"\x00", b"\x02\x00", b"\x04\x02\x04"):
        assert framed(b"\x00\x00\x00\x00\x09" + indexes + file.SerializeToString())["name"] == "f"
    with pytest.raises(ValueError, match="cut off"):
        without_indexes(b"\x00\x00\x00\x00\x09\x80")


@pytest.mark.parametrize(
    ("decode", "schema", "words"),
    [
        ("csv", None, "decode is 'csv'; use one of json, text, bytes, avro, protobuf, or a function"),
        ("avro", None, "avro needs registry="),
        ("avro", {"type": "nothing"}, "schema is not an Avro schema"),
        ("json", SCHEMA, "schema and registry are for avro and protobuf, not for json"),
        ("protobuf", dict, "protobuf needs schema=, the class"),
    ],
)
def test_wrong_arguments_are_one_line(decode: str, schema: Any, words: str) -> None:
    with pytest.raises(PipelineError, match=words) as refused:
        decoder_of(SAID, decode, schema, None)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("url", ["r", "ftp://r", "https://me:hunter2@r", "http://r\n"])
def test_a_registry_needs_a_url_without_a_password(url: str) -> None:
    with pytest.raises(PipelineError, match="registry is not a URL") as refused:
        Registry(SAID, url)
    assert "hunter2" not in str(refused.value)
