"""A schema registry: schemas by the number that precedes each value, fetched once and kept in memory.

A number never gets another schema, so that a replay decodes as the first reading did.
"""

from __future__ import annotations

import base64
import json
import struct
import urllib.error
import urllib.request
from typing import Any

from causal.errors import PipelineError, Unavailable

TIMEOUT_S = 4.0
SCHEMA_BYTES_MAX = 1 << 22
SCHEMAS_MAX = 10_000
MAGIC_BYTES = 5
_MAGIC = struct.Struct(">BI")


class Registry:
    """A registry with the HTTP interface of Confluent's.

    Args:
        url: its URL, without user and password.
        user: "user:password", if it needs them; no message has it.
    """

    def __init__(self, said: str, url: str, user: str | None = None) -> None:
        good = isinstance(url, str) and url.startswith(("http://", "https://")) and url.isprintable()
        if not good or "@" in url.partition("://")[2].partition("/")[0]:
            raise PipelineError(
                f"{said}: registry is not a URL like https://registry.example; pass user and password in registry_user"
            )
        if user is not None and (not isinstance(user, str) or ":" not in user):
            raise PipelineError(f"{said}: registry_user is not USER:PASSWORD")
        self.url = url.rstrip("/")
        self._said = said
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if user is not None:
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._schemas: dict[int, Any] = {}

    def schema(self, number: int) -> Any:
        """Return the schema with this number, as JSON.

        Raises:
            ValueError: there is none, or it refers to others; the value cannot be decoded.
            PipelineError: the registry refuses the request.
            Unavailable: the registry does not answer.
        """
        if number not in self._schemas:
            if len(self._schemas) >= SCHEMAS_MAX:
                self._schemas.clear()
            self._schemas[number] = self._fetch(number)
        return self._schemas[number]

    def _fetch(self, number: int) -> Any:
        asked = urllib.request.Request(f"{self.url}/schemas/ids/{number}", headers=self._headers)
        where = f"the schema registry at {self.url}"
        try:
            with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
                body = answer.read(SCHEMA_BYTES_MAX + 1)
        except urllib.error.HTTPError as problem:
            if problem.code == 404:
                raise ValueError(f"{where} has no schema {number}") from None
            if problem.code in (401, 403):
                raise PipelineError(f"{self._said}: {where} refuses the request; check registry_user") from None
            raise Unavailable(f"{where} answers {problem.code}") from None
        except (OSError, ValueError) as problem:
            raise Unavailable(f"{where} does not answer: {getattr(problem, 'reason', problem)}") from None
        if len(body) > SCHEMA_BYTES_MAX:
            raise ValueError(f"schema {number} has more than {SCHEMA_BYTES_MAX:,} bytes")
        described = json.loads(body)
        if described.get("references"):
            raise ValueError(f"schema {number} refers to other schemas; register it as a whole")
        return json.loads(described["schema"])


def schema_id(value: bytes) -> int:
    """Return the number of the schema that precedes a value.

    Raises:
        ValueError: the value has none.
    """
    if len(value) < MAGIC_BYTES or value[0]:
        raise ValueError("no number of a schema precedes the value")
    return int(_MAGIC.unpack_from(value)[1])


def without_indexes(value: bytes) -> bytes:
    """Return the protobuf message in a value, without its schema's number and the indexes of its message type.

    Raises:
        ValueError: the value has none.
    """
    schema_id(value)
    count, at = _zigzag(value, MAGIC_BYTES)
    for _ in range(count):
        _, at = _zigzag(value, at)
    return value[at:]


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(value) and shift < 32:
        byte = value[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise ValueError("the indexes of the message type are cut off")
