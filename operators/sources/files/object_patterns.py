"""URLs of objects as patterns: `s3://bucket/in/*.csv`, with the rules that patterns of paths have.

*  ?  […]                       within a part of the key; everything else, such as `%` or `#`, stands for itself
**                              any parts
a part that begins with . or _  matches only if the pattern's part begins with the same character
a pattern without a wildcard    is the key of one object
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from causal.errors import PipelineError
from operators.sources.files.matching import HIDDEN, MAGIC, suits

SCHEMES = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}
"""Scheme → the client's class."""
_OTHERS = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az", "abfs": "az", "abfss": "az", "wasbs": "az"}
"""Scheme of other programs → ours."""


@dataclass(frozen=True, slots=True)
class ObjectPattern:
    """A pattern of URLs in one bucket (a container, in Azure)."""

    scheme: str
    bucket: str
    key: str

    @property
    def store(self) -> str:
        """The URL of the bucket."""
        return f"{self.scheme}://{self.bucket}"

    @property
    def text(self) -> str:
        """The pattern as it is written."""
        return f"{self.store}/{self.key}"

    @property
    def is_exact(self) -> bool:
        """Whether the pattern is the key of one object."""
        return not MAGIC.search(self.key)

    @property
    def folder(self) -> str:
        """The parts of the key before the first with a wildcard; only keys below them can match."""
        return MAGIC.split(self.key, maxsplit=1)[0].rpartition("/")[0]

    def matcher(self) -> Callable[[str], bool]:
        """Return a function of a key that returns whether the key matches."""
        parts = self.key.split("/")
        once = [part for place, part in enumerate(parts) if parts[place : place + 2] != ["**", "**"]]
        if once[-1] == "**":
            once.append("*")
        wanted = [None if part == "**" else suits(part) if MAGIC.search(part) else part.__eq__ for part in once]
        return lambda key: _fits(key.split("/"), wanted)


def _fits(parts: Sequence[str], wanted: Sequence[Callable[[str], bool] | None]) -> bool:
    """Return whether the parts of a key are those that are wanted; None stands for any parts that are not hidden."""
    if not wanted:
        return not parts
    first, rest = wanted[0], wanted[1:]
    if first is not None:
        return bool(parts) and first(parts[0]) and _fits(parts[1:], rest)
    visible = next((place for place, part in enumerate(parts) if part.startswith(HIDDEN)), len(parts))
    return any(_fits(parts[skipped:], rest) for skipped in range(visible + 1))


def object_patterns(where: str, written: Sequence[str]) -> tuple[ObjectPattern, ...]:
    """Return the patterns if they are URLs; none if they are paths.

    Raises:
        PipelineError: one of them is a URL of something else, or some are URLs and some are paths.
    """
    urls = [text for text in written if "://" in text]
    if not urls:
        return ()
    patterns = tuple(_pattern(where, text) for text in urls)
    if len(urls) < len(written):
        path = next(text for text in written if "://" not in text)
        raise PipelineError(f"{where} was given {urls[0]} and {path}; use a separate source for files")
    return patterns


def _pattern(where: str, text: str) -> ObjectPattern:
    scheme, _, rest = text.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme not in SCHEMES:
        known = _OTHERS.get(scheme.lower(), scheme.lower())
        remedy = f"{known}://{rest}" if known in SCHEMES else "s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY"
        raise PipelineError(f"{where}: {text} is not the URL of objects; use {remedy} or a path")
    if not bucket or MAGIC.search(bucket) or not text.isprintable():
        raise PipelineError(
            f"{where}: {text!r} names no bucket; use {scheme}://BUCKET/KEY, as in {scheme}://logs/*.csv"
        )
    if not key or key.endswith("/"):
        raise PipelineError(f"{where}: {text} names no objects; use '{text.rstrip('/')}/*'")
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise PipelineError(f"{where}: {text} has an empty part, '.' or '..' in its key; name each folder once")
    return ObjectPattern(scheme, bucket, key)
