"""Polling of a page: each version of its content is accepted once, and only if it is known to be complete.

Anything but a complete page is discarded and reported, and the page is fetched again. Examples are a connection that
closes early, a missing chunk, an answer that is not HTTP, a part of the page, and another encoding. This module reads
chunks itself, because `http.client` treats the first digit of a truncated size as the whole size, and 0 as the end. An
answer without a length may have been truncated anywhere, so it is accepted only if its content proves that it is
complete: a single JSON array or object.
"""

from __future__ import annotations

import http.client
import io
import json
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import xxhash

from operators.sources.files.cutting_rows import BYTE_ORDER_MARK
from operators.sources.lines.lines_log import LineWriter

ANSWER_TIMEOUT_S = 10.0
"""The longest wait for the next bytes of an answer."""
ANSWER_S_MAX = 120.0
"""The longest time that a whole answer may take."""
TRIES_PAUSE_MAX_S = 30.0
ETAG_CHARACTERS_MAX = 1 << 10
READ_BYTES = 1 << 16
CHUNK_LINE_BYTES_MAX = 1 << 12
WHOLE = (200, 203, 204)
"""The statuses of an answer that is all of the page."""


class Polled(Protocol):
    """A page to poll, and how it is divided into lines (`HttpSource`)."""

    url: str | None
    every_s: float
    token: str | None
    format: str
    row_bytes_max: int

    def lines_of(self, body: bytes) -> list[bytes]: ...


def poll(source: Polled, writer: LineWriter, name: str) -> None:
    """Fetch the page repeatedly; content with the ETag or the bytes of the last content is not accepted again."""
    failures = 0
    while True:
        try:
            fetched = fetch(source, writer.note)
            failures = 0
        except (OSError, ValueError, http.client.HTTPException) as problem:  # urllib's errors are OSErrors
            failures += 1
            line = " ".join(str(problem).split())[:300] or type(problem).__name__
            print(f"source {name!r}: {source.url}: {line}; the request is retried", file=sys.stderr, flush=True)
            fetched = None
        if fetched is not None:
            writer.publish(*fetched)
        pause_s = min(TRIES_PAUSE_MAX_S, 0.5 * 2 ** min(failures, 10)) if failures else 0.0
        time.sleep(max(source.every_s, pause_s))


def fetch(source: Polled, note: str, clock: Callable[[], float] = time.monotonic) -> tuple[list[bytes], str] | None:
    """Return the lines of new content with its note, or None if nothing has changed since `note`.

    Raises:
        OSError, ValueError, HTTPException: the page is missing or incomplete, or contains no records.
    """
    before = json.loads(note) if note else {}
    request = urllib.request.Request(str(source.url))
    if before.get("etag"):
        request.add_header("If-None-Match", before["etag"])
    if source.token:  # a redirection may lead to another server, which must not receive the token
        request.add_unredirected_header("Authorization", f"Bearer {source.token}")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as answer:
            body = _whole(answer, source, clock)
            etag = answer.headers.get("ETag", "")
    except urllib.error.HTTPError as problem:
        with problem:
            if problem.code == 304 and request.has_header("If-none-match"):
                return None
        raise
    digest = xxhash.xxh3_128_hexdigest(body)
    if digest == before.get("digest"):
        return None
    lines = source.lines_of(_as_lines(body) if source.format == "json" else body)
    kept = etag if etag.isascii() and etag.isprintable() and len(etag) <= ETAG_CHARACTERS_MAX else ""
    return lines, json.dumps({"etag": kept, "digest": digest})


def _whole(answer: Any, source: Polled, clock: Callable[[], float]) -> bytes:
    """Return the body of an answer.

    Raises:
        ValueError: the body is not the whole page, or nothing confirms that it is.
    """
    if answer.status not in WHOLE:
        raise ValueError(f"the answer has status {answer.status}, so it is not the whole page")
    if "Content-Range" in answer.headers:
        raise ValueError(f"the answer is only part of the page ({answer.headers['Content-Range']})")
    encodings = answer.headers.get_all("Content-Encoding", []) + answer.headers.get_all("Transfer-Encoding", [])
    for encoding in [each.strip().lower() for each in encodings]:
        if encoding not in ("", "identity", "chunked") or (encoding == "chunked" and not answer.chunked):
            raise ValueError(f"the answer is encoded as {encoding}, which was not asked for")
    lengths = {each.strip() for each in answer.headers.get_all("Content-Length", ())}
    if len(lengths) > 1:
        raise ValueError(f"the answer states two lengths ({', '.join(sorted(lengths))})")
    if answer.length is not None and not all(map(_DIGITS.fullmatch, lengths)):
        raise ValueError(f"the answer has a length that is not a number ({lengths.pop():.40})")
    framed = answer.chunked or answer.length is not None
    body, deadline_s = bytearray(), clock() + ANSWER_S_MAX
    read = _Chunks(answer.fp).read1 if answer.chunked else answer.read1
    while data := read(min(READ_BYTES, source.row_bytes_max + 1 - len(body))):
        body += data
        if len(body) > source.row_bytes_max:
            raise ValueError(f"more than {source.row_bytes_max:,} bytes (body_bytes_max)")
        if clock() > deadline_s:
            raise ValueError(f"the answer is still incomplete after {ANSWER_S_MAX:g} s")
    if answer.length:
        raise ValueError(
            f"the answer was truncated: {answer.length:,} of {len(body) + answer.length:,} bytes are missing"
        )
    if not framed and not (source.format == "json" and _is_one_value(body)):
        raise ValueError(
            "the answer does not state its length, so a truncated answer could not be detected; let the server "
            "send Content-Length or chunks, or one JSON array"
        )
    return bytes(body)


class _Chunks:
    """The content of the chunks of an answer, up to the final chunk of size 0."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._left: int | None = None

    def read1(self, size: int) -> bytes:
        """Return the next bytes, or nothing after the last chunk.

        Raises:
            ValueError: the answer ends before the last chunk, or is not a sequence of chunks.
        """
        if not self._left:
            ended = self._left is None or self._file.readline(2) in (b"\r\n", b"\n")
            line = _CHUNK.fullmatch(self._file.readline(CHUNK_LINE_BYTES_MAX)) if ended else None
            if line is None:
                raise ValueError(
                    "the answer was truncated between two chunks, or a chunk is longer than its header states"
                )
            self._left = int(line[1], 16)
            if not self._left:
                return b""
        data = self._file.read1(min(size, self._left))
        if not data:
            raise ValueError(f"the answer was truncated: {self._left:,} bytes of a chunk are missing")
        self._left -= len(data)
        return data


def _is_one_value(body: bytearray) -> bool:
    """Return whether the body is a single JSON array or object, which cannot be the beginning of a longer one."""
    try:
        return type(msgspec.json.decode(bytes(body).removeprefix(BYTE_ORDER_MARK))) in (list, dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def _as_lines(body: bytes) -> bytes:
    """Return a page as lines: the items of a JSON array, any other JSON value on one line, or other text unchanged.

    The spelling of each value is kept, so no line is longer than the page. Line ends inside a value are between tokens,
    where a space is equivalent.
    """
    body = body.removeprefix(BYTE_ORDER_MARK)
    try:
        items = msgspec.json.decode(body) if body.strip().startswith(b"[") else None
        spelled = _ITEMS.decode(body) if type(items) is list else [_VALUE.decode(body)]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return body
    return b"\n".join(bytes(each).translate(_ONE_LINE) for each in spelled)


_DIGITS, _CHUNK = re.compile("[0-9]{1,18}"), re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]*)?\r?\n")
_ITEMS, _VALUE = msgspec.json.Decoder(list[msgspec.Raw]), msgspec.json.Decoder(msgspec.Raw)
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
