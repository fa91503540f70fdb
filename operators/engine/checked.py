"""Checks of user-defined source readers; an error names the reader that breaks the contract."""

from __future__ import annotations

from typing import Any

from causal.errors import PipelineError
from operators.source import PartitionReader, Read, Source

_METHODS = ("read", "ready_in_s", "completed", "close")


def checked(name: str, source: Source[Any], reader: Any) -> PartitionReader:
    """Return the reader that `source.open` returned; unless it is built in, wrap it to check the results of `read`.

    Raises:
        PipelineError: `reader` is not a source reader.
    """
    missing = [method for method in _METHODS if not callable(getattr(reader, method, None))]
    if missing:
        raise PipelineError(
            f"source {name!r}: {type(source).__name__}.open() returned {_kind(reader)}, which has no {missing[0]}(); "
            f"return an object with {', '.join(_METHODS)}"
        )
    if type(reader).__module__.startswith("operators."):
        return reader  # type: ignore[no-any-return]
    return CheckedReader(reader, f"source {name!r}: {type(reader).__name__}.read()")


class CheckedReader:
    """A reader that checks each batch and delegates all other calls to the wrapped reader."""

    def __init__(self, reader: Any, what: str) -> None:
        self._reader = reader
        self._what = what

    def read(self, position: int, count_max: int) -> Read | None:
        """Return the batch that the wrapped reader reads.

        Raises:
            PipelineError: the wrapped reader returned something other than a valid batch.
        """
        batch = self._reader.read(position, count_max)
        if batch is None:
            return None
        if type(batch) is not Read:
            raise PipelineError(
                f"{self._what} returned {_kind(batch)}; it must return Read(records, origin_ns), or None"
            )
        if not hasattr(batch.records, "__len__"):
            raise PipelineError(f"{self._what} returned records in {_kind(batch.records)}; it must return a list")
        if type(batch.origin_ns) is not int:
            raise PipelineError(
                f"{self._what} returned origin_ns {batch.origin_ns!r:.40}; it must be an int, as from "
                "time.monotonic_ns()"
            )
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
