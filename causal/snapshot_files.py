"""The names of snapshot files, which state the barriers whose changes a file contains.

A task writes one file per barrier. Merged files take the place of several of them; see `docs/design/0037-merging.md`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SNAPSHOT_SUFFIX = ".snap"

SnapshotFile = tuple[str, int, str]
"""A snapshot file: (path relative to the job directory, size in bytes, hexadecimal digest)."""

_WRITTEN = re.compile(r"e(\d+)-i(\d+)(?:-[0-9a-f]+)?\.snap")
_MERGED = re.compile(r"m(\d+)-(\d+)-i(\d+)\.snap")


@dataclass(frozen=True, slots=True)
class Span:
    """The barriers after which a file contains the changes.

    Attributes:
        first: the first barrier; 0 if the file is known to contain the whole state.
        last: the barrier whose state a restore up to this file yields.
        merged: whether the file was merged from others; it is then divided by key group.
        incarnation: the incarnation that wrote the file.
    """

    first: int
    last: int
    merged: bool
    incarnation: int


def written_name(task: str, epoch: int, incarnation: int) -> str:
    """Return the path of the file that an incarnation writes for barrier `epoch`."""
    return f"checkpoints/{task}/e{epoch:08d}-i{incarnation}{SNAPSHOT_SUFFIX}"


def merged_name(task: str, first: int, last: int, incarnation: int) -> str:
    """Return the path of the file into which an incarnation merges those of the barriers from `first` to `last`."""
    return f"checkpoints/{task}/m{first:08d}-{last:08d}-i{incarnation}{SNAPSHOT_SUFFIX}"


def span_of(path: str) -> Span | None:
    """Return the barriers that the name of a snapshot file states, or None for another name."""
    name = path.rpartition("/")[2]
    written = _WRITTEN.fullmatch(name)
    if written:
        return Span(int(written[1]), int(written[1]), False, int(written[2]))
    merged = _MERGED.fullmatch(name)
    return Span(int(merged[1]), int(merged[2]), True, int(merged[3])) if merged else None
