"""An element of a source that cannot be read as a record; it still counts, so that later positions do not change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An element that is not a record.

    Attributes:
        where: the file and line of the element, or another description of its location.
        why: the reason why the element is not a record.
        raw: the text of the element, or the beginning of the text.
        option: the change of the pipeline that makes the element readable; empty if there is none.
    """

    where: str
    why: str
    raw: Any
    option: str = ""
