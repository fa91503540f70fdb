"""The base class of sinks, the encoding of records as rows, and checks that sinks make before a job starts."""

from __future__ import annotations

import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import compress
from math import isfinite
from pathlib import Path
from typing import Any

from causal.errors import PipelineError, invariant
from causal.ports import Bundle, SinkStore
from causal.records.rows import Rows
from causal.records.values import NotCarried
from causal.records.vectors import Vectors
from operators.records.nesting import room_for_nesting
from operators.sinks.contract.key_text import key_text


def _plain(before_bytes: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return before_bytes + value.hex()
    raise NotCarried(f"{type(value).__qualname__} cannot be written as JSON")


def _spelled(value: Any) -> Any:
    """Return the value with text in place of the numbers that JSON lacks (NaN and the infinities), even in keys."""
    if isinstance(value, float) and not isfinite(value):
        return NOT_FINITE[repr(value)]
    if isinstance(value, dict):
        odd = next((key for key in value if not isinstance(key, _KEYS)), None)
        if odd is not None:
            raise NotCarried(
                f"a key that is a {type(odd).__qualname__} cannot be written as JSON; convert it to a string"
            )
        return {_spelled(key): _spelled(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_spelled(inner) for inner in value]
    return value


_KEYS = (str, int, float, bool, type(None))
NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""The text for numbers that JSON does not have; `float` reads it back."""


def json_encoder(before_bytes: str = "") -> Callable[[Any], str]:
    """Return an equivalent of `JSONEncoder.encode` that creates its C encoder only once.

    This saves a third of the time.

    The encoder does not detect records that contain themselves. Every record that reaches a sink was decoded from
    bytes, so none does.

    Args:
        before_bytes: the text to put before the hexadecimal digits of bytes.
    """
    plain = partial(_plain, before_bytes)
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": "), default=plain, allow_nan=False)
    make_encoder = getattr(json.encoder, "c_make_encoder", None)
    if make_encoder is None:
        parts = encoder.iterencode
    else:
        parts = make_encoder(None, plain, json.encoder.encode_basestring, None, ": ", ", ", False, False, False)

    def encode(record: Any) -> str:
        try:
            return "".join(parts(record, False))
        except (ValueError, TypeError, RecursionError):
            return again(record)

    def again(record: Any) -> str:
        """Encode a record with numbers or keys that JSON lacks, or with nesting beyond the usual recursion limit."""
        with room_for_nesting():
            try:
                try:
                    return "".join(parts(record, False))
                except (ValueError, TypeError):
                    return "".join(parts(_spelled(record), False))
            except RecursionError:
                raise NotCarried("it is nested too deeply to be written as JSON") from None

    return encode


encode_json = json_encoder()
"""A value as JSON.  What JSON does not have is text: a `datetime` in ISO form, a `Decimal` in its digits, bytes in
hexadecimal digits, NaN, Infinity and -Infinity by these names; a tuple is an array.  A key that is a number, a boolean
or None is its text; any other is refused (`NotCarried`)."""


class Sink(ABC):
    """A sink, as passed to `.sink(name, …)`."""

    durability: str | None = None
    """The promise of its stores for acknowledged rows: "process" means that they survive the death of every process,
    "os"
    that they also survive a loss of power. None, when a job is planned, stands for the job's own `durability`."""

    everywhere: bool = False
    """Whether its stores are reached from every host alike, so that its tasks can move to another one."""

    existing: str | None = None
    """The treatment of rows of an earlier run; a sink with "refuse" is asked before that run's state is discarded."""

    upsert: bool = False
    """Whether it keeps one row per key of a table, and its records are revisions (key, old, new)."""

    place: str = ""
    """The place of its rows, for messages: an absolute path or a URL; empty where the sink does not say it."""

    def encode(self, records: Sequence[Any]) -> bytes:
        """Return the rows for these records: one JSON document per record (`encode_json`), each followed by a newline.

        An unpaired surrogate, which UTF-8 cannot represent, is written as its JSON escape. The records of a sink with
        `upsert` are revisions (key, old, new); a row is the text of the key, a tab, and the new value, if there is one.
        """
        if self.upsert:
            lines = [f"{key_text(key)}\t{'' if new is None else encode_json(new)}\n" for key, _, new, *_ in records]
        else:
            lines = [encode_json(record) + "\n" for record in records]
        return "".join(lines).encode("utf-8", "backslashreplace")

    def encode_rows(self, rows: Rows) -> bytes:
        """Return the rows that `encode` returns for these tuples."""
        return self.encode(rows.listed() if type(self).encode is not Sink.encode else rows)  # type: ignore[arg-type]

    def encode_vectors(self, vectors: Vectors) -> bytes:
        """Return the rows that `encode` returns for `vectors`, column by column unless `encode` is overridden."""
        from operators.records.arrow_rows import rows_of
        from operators.sinks.contract.json_columns import json_lines

        if type(self).encode is not Sink.encode:
            return self.encode(rows_of(vectors.batch, 0, len(vectors)))
        return json_lines(vectors, encode_json)

    def shown_row(self, rows: bytes, index: int) -> Any:
        """Return one of the rows that `encode` returned as a JSON-compatible value, for dead letters and messages.

        A sink whose `encode` does not return one JSON document per line must override this method.
        """
        line = rows.split(b"\n", index + 1)[index]
        if not self.upsert:
            return json.loads(line)
        key, _, record = line.partition(b"\t")
        return {"key": key.decode(), "record": json.loads(record) if record else None}

    @abstractmethod
    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task; the store fences and reads nothing until it is opened."""

    def check(self) -> None:
        """Raise `PipelineError` for mistakes that can be detected before the job starts, such as a wrong path."""

    def newest_run(self) -> str | None:
        """Return the newest run that has started writing to this sink's output, or None if no such run is known.

        A new run receives a higher start number than the run returned here. A sink that lets a newer run replace an
        older one (`existing="replace"`) should override this method. Otherwise, if a clock is set back, a new run
        appears older than its predecessor.

        Raises:
            Unavailable: the store cannot be queried now.
        """
        return None


def check_writable(directory: Path, sink: str) -> None:
    """Raise `PipelineError` unless a file can be created in `directory`; the check leaves no file there."""
    if not directory.is_dir():
        raise PipelineError(f"{sink}: the directory {directory} does not exist; create it first (mkdir -p {directory})")
    try:
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as problem:
        raise PipelineError(
            f"{sink}: nothing can be written in {directory} ({problem.strerror}); use a writable path"
        ) from None


def check_directory(directory: Path, sink: str) -> None:
    """Raise `PipelineError` unless files can be created in `directory` or, if it does not exist, in its parent."""
    if directory.exists() and not directory.is_dir():
        raise PipelineError(f"{sink}: {directory} is not a directory; use another path")
    check_writable(directory if directory.exists() else directory.parent, sink)


def lines_of(bundle: Bundle) -> tuple[Iterable[int], Iterable[str]]:
    """Return the positions and lines of the rows to store: all rows of the bundle except those in `refused`.

    This function is for sinks that do not override `Sink.encode`.
    """
    lines = bundle.rows.decode().split("\n")
    invariant(len(lines) == bundle.count + 1, "one line per row", first=bundle.first, count=bundle.count)
    lines.pop()
    positions = range(bundle.first, bundle.first + bundle.count)
    if not bundle.refused:
        return positions, lines
    kept = bytearray(b"\1") * bundle.count
    for position, _ in bundle.refused:
        kept[position - bundle.first] = 0
    return compress(positions, kept), compress(lines, kept)
