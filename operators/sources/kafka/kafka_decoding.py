"""The decoding of Kafka messages: values, keys and headers as records; what cannot be decoded is `Unreadable`."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from causal.errors import PipelineError
from causal.records.unreadable import Unreadable
from operators.sources.files.cutting_rows import json_of
from operators.sources.kafka.kafka_schemas import MAGIC_BYTES, Registry, schema_id, without_indexes
from operators.sources.payloads import PLAIN, Decode, decoded, plain_decoder, reason_of, unreadable

FORMATS = (*PLAIN, "avro", "protobuf")


def decoder_of(said: str, decode: object, schema: object, registry: Registry | None) -> Decode:
    """Return the function that decodes values.

    Args:
        decode: one of `FORMATS`, or a function.
        schema: for avro, the schema as a dict or as JSON; for protobuf, the class of the message.

    Raises:
        PipelineError: the arguments do not fit together, or a library is missing.
    """
    if isinstance(decode, str) and decode not in FORMATS:
        raise PipelineError(f"{said}: decode is {decode!r}; use one of {', '.join(FORMATS)}, or a function of bytes")
    if decode == "avro":
        return _avro(said, schema, registry)
    if decode == "protobuf":
        return _protobuf(said, schema, registry is not None)
    if isinstance(decode, str) and (schema is not None or registry is not None):
        raise PipelineError(f"{said}: schema and registry are for avro and protobuf, not for {decode}")
    return plain_decoder(said, decode)


def _avro(said: str, schema: object, registry: Registry | None) -> Decode:
    _require(said, "fastavro", "avro")
    if (schema is None) == (registry is None):
        raise PipelineError(f"{said}: avro needs registry='https://…', or schema= for values without a schema's number")
    import fastavro

    if registry is not None:
        parsed: dict[int, Any] = {}

        def decode_framed(value: bytes) -> Any:
            number = schema_id(value)
            if number not in parsed:
                parsed[number] = fastavro.parse_schema(registry.schema(number))
            return fastavro.schemaless_reader(io.BytesIO(value[MAGIC_BYTES:]), parsed[number], None)

        return decode_framed
    try:
        own = fastavro.parse_schema(json_of(schema) if isinstance(schema, str) else schema)  # type: ignore[arg-type]
    except Exception as problem:
        raise PipelineError(f"{said}: schema is not an Avro schema: {problem}") from None
    return lambda value: fastavro.schemaless_reader(io.BytesIO(value), own, None)


def _protobuf(said: str, message: object, framed: bool) -> Decode:
    _require(said, "google.protobuf", "protobuf")
    from google.protobuf.message import Message

    if not isinstance(message, type) or not issubclass(message, Message):
        raise PipelineError(f"{said}: protobuf needs schema=, the class of the messages that protoc has made")

    kind: Any = message

    def decode(value: bytes) -> Any:
        return _plain(kind.FromString(without_indexes(value) if framed else value))

    return decode


def _plain(message: Any) -> dict[str, Any]:
    """Return a protobuf message as a dict; a field that has presence and is not set is left out."""
    record: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value, of = getattr(message, field.name), _item(field)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of = _item(field.message_type.fields_by_name["value"])
            record[field.name] = {key: of(value[key]) for key in sorted(value)}
        else:
            record[field.name] = [of(each) for each in value] if field.is_repeated else of(value)
    return record


def _item(field: Any) -> Callable[[Any], Any]:
    if field.message_type is not None:
        return _plain
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else number
    return lambda value: value


def _require(said: str, module: str, decode: str) -> None:
    try:
        there = find_spec(module) is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        name = module.rpartition(".")[2]
        raise PipelineError(f"{said}: decode={decode!r} needs {name}; run `pip install {name}`")


class Decoder:
    """Turns messages into records.

    Args:
        place: the topic and partition, for `Unreadable.where`.
        decode_key: as `decode`, for keys.
        with_metadata: whether records are dicts of value, key, headers, timestamp, partition and offset.
    """

    def __init__(
        self, place: str, decode: Decode, decode_key: Decode, with_metadata: bool, value_bytes_max: int
    ) -> None:
        self._place = place
        self._decode = decode
        self._decode_key = decode_key
        self._with_metadata = with_metadata
        self._value_bytes_max = value_bytes_max

    def record(self, message: Any) -> Any:
        """Return the record of a message, or an `Unreadable` if it is not one.

        Raises:
            CausalError: its schema is unavailable.
        """
        value = message.value()
        if value is not None and len(value) > self._value_bytes_max:
            why = f"a value of {len(value):,} bytes (value_bytes_max is {self._value_bytes_max:,})"
            return unreadable(self._where(message), why, value)
        record = None if value is None else decoded(self._decode, value, self._where(message))
        if type(record) is Unreadable:
            return record
        if not self._with_metadata:
            return record
        key = message.key()
        try:
            key = None if key is None else self._decode_key(key)
        except Exception as problem:
            return unreadable(self._where(message), f"its key: {reason_of(problem)}", message.key())
        kind, at_ms = message.timestamp()
        return {
            "value": record,
            "key": key,
            "headers": dict(message.headers() or ()),
            "timestamp": at_ms / 1000 if kind else None,
            "partition": message.partition(),
            "offset": message.offset(),
        }

    def _where(self, message: Any) -> str:
        return f"{self._place}@{message.offset()}"
