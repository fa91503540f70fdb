"""The form of a row: key, value and headers of one message, made once from its record, so that a replay repeats them.

Rows of a bundle are MessagePack values in a row, each `[key, value, headers]`. A value or key that the chosen form
cannot carry unchanged fails its record (`NotCarried`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgpack

from causal.errors import PipelineError
from causal.records.values import NotCarried, encode_loosely
from operators.sinks.contract.key_text import key_text
from operators.sinks.contract.sink import encode_json

Row = tuple[bytes | None, bytes | None, list[list[Any]]]
"""Key or subject, value, and the user's headers as [name, value]."""
Value = bytes | str | None
TASK, POSITION = "task", "position"
"""The headers of every row: which sink task wrote it, and its position there."""
FORMS = ("json", "text", "bytes", "avro")


def value_encoder(said: str, form: object, schema: object) -> Callable[[Any], bytes | None]:
    """Return the function from a record to the value of its message.

    Args:
        form: one of `FORMS`, or a function of the user's.
        schema: the Avro schema, with the form "avro" alone.

    Raises:
        PipelineError: the form is unknown, or the schema is missing or wrong.
    """
    if (form == "avro") != (schema is not None):
        raise PipelineError(f'{said}: pass encode="avro" and schema together')
    if callable(form):
        return _checked(form, "encode")
    if form == "avro":
        return avro_encoder(said, schema)
    simple = {"json": _json, "text": _text, "bytes": _bytes}.get(str(form))
    if simple is None:
        raise PipelineError(f"{said}: encode is {form!r}; use {', '.join(FORMS)} or a function of a record")
    return simple


def row_encoder(
    value_of: Callable[[Any], bytes | None],
    key: Callable[[Any], Any] | None,
    headers: Callable[[Any], Mapping[str, Value]] | None,
) -> Callable[[Any], bytes]:
    """Return the function from a record to its row."""

    def encode(record: Any) -> bytes:
        named = [] if headers is None else _headers(headers(record))
        return encode_loosely([None if key is None else _key(key(record)), value_of(record), named])

    return encode


def revision_encoder(value_of: Callable[[Any], bytes | None]) -> Callable[[Any], bytes]:
    """Return the function from a revision (key, old, new) of a table to its row; a deletion has no value."""

    def encode(revision: Any) -> bytes:
        key, _, new, *_ = revision
        return encode_loosely(
            [key_text(key).encode("utf-8", "backslashreplace"), None if new is None else value_of(new), []]
        )

    return encode


def rows_in(rows: bytes) -> Iterator[Row]:
    """Yield the rows of a bundle."""
    unpacker = msgpack.Unpacker(raw=False, max_buffer_size=max(len(rows), 1))
    unpacker.feed(rows)
    yield from unpacker


def shown(row: Row, form: object) -> Any:
    """Return a row as a JSON-compatible value, for dead letters and messages."""
    key, value, headers = row
    if form == "json" and key is None and not headers and value is not None:
        return json.loads(value)
    fields = {"key": _readable(key), "value": json.loads(value) if form == "json" and value else _readable(value)}
    return fields | ({"headers": {name: _readable(each) for name, each in headers}} if headers else {})


def _readable(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()


def _json(record: Any) -> bytes:
    return encode_json(record).encode("utf-8", "backslashreplace")


def _text(record: Any) -> bytes:
    if not isinstance(record, str):
        raise NotCarried(f'a {type(record).__qualname__} is no text; use encode="json", or a function')
    return _utf8(record)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise NotCarried("the text has an unpaired surrogate, which UTF-8 cannot represent") from None


def _bytes(record: Any) -> bytes:
    if not isinstance(record, (bytes, bytearray)):
        raise NotCarried(f'a {type(record).__qualname__} is not bytes; use encode="json", or a function')
    return bytes(record)


def _key(key: Any) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    return _utf8(key) if isinstance(key, str) else _json(key)


def _headers(headers: Any) -> list[list[Any]]:
    if not isinstance(headers, Mapping):
        raise NotCarried(f"headers gave a {type(headers).__qualname__}; return a dict")
    named = []
    for name, value in headers.items():
        if not isinstance(name, str) or name in (TASK, POSITION):
            raise NotCarried(f"a header is named {name!r}; use text other than {TASK!r} and {POSITION!r}")
        if not isinstance(value, (str, bytes, type(None))):
            raise NotCarried(f"header {name!r} is a {type(value).__qualname__}; use text or bytes")
        named.append([name, _utf8(value) if isinstance(value, str) else value])
    return named


def _checked(encode: Callable[[Any], Any], name: str) -> Callable[[Any], bytes | None]:
    """Return `encode` with a check of the type of each value."""

    def encoded(record: Any) -> bytes | None:
        value = encode(record)
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, str):
            return _utf8(value)
        raise NotCarried(f"{name} gave a {type(value).__qualname__}; return bytes, text or None")

    return encoded


def avro_encoder(said: str, schema: object) -> Callable[[Any], bytes]:
    """Return the function from a record to Avro's binary form, which refuses what a reader would not get back."""
    try:
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError as problem:
        raise PipelineError(
            f"{said} needs fastavro ({problem}); run `pip install -e '.[kafka]'` in the checkout"
        ) from None
    try:
        parsed = fastavro.parse_schema(schema)  # type: ignore[arg-type]
    except (SchemaParseException, UnknownType, TypeError, KeyError, AttributeError) as problem:
        raise PipelineError(f"{said}: the Avro schema is invalid: {problem}; correct it") from None

    def encode(record: Any) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, parsed, record, strict_allow_default=True)
            out.seek(0)
            read = fastavro.schemaless_reader(out, parsed, None)
            fits = fastavro.validate(record, parsed, raise_errors=False)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, IndexError, ArithmeticError) as problem:
            raise NotCarried(f"the Avro schema cannot carry it: {problem or type(problem).__name__}") from None
        if not fits or not _same(record, read):
            raise NotCarried("the Avro schema would change a value; use wider types")
        return out.getvalue()

    return encode


def _same(value: Any, read: Any) -> bool:
    """Return whether a reader gets `value` back; keys that the schema fills with defaults may be added."""
    if isinstance(value, dict) and isinstance(read, dict):
        return all(key in read and _same(each, read[key]) for key, each in value.items())
    if isinstance(value, (list, tuple)) and isinstance(read, (list, tuple)):
        return len(value) == len(read) and all(map(_same, value, read))
    if isinstance(value, bool) != isinstance(read, bool) or isinstance(value, Decimal) != isinstance(read, Decimal):
        return False
    return bool(value == read) or (value != value and read != read)


def encode_all(encode: Callable[[Any], bytes], records: Sequence[Any]) -> bytes:
    """Return the rows of these records."""
    return b"".join([encode(record) for record in records])
