"""The corpus of the inverted index: its documents and their words; shared with the check of the output."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]

_WORD = re.compile(r"[A-Za-z_]\w*")
_PREFIX, _SLASH = "doc=", "="


def documents_of(corpus: Path) -> list[str]:
    """Return paths, relative to `corpus`, of every `*.py` file below it, without installed packages."""
    paths = (path.relative_to(corpus) for path in corpus.rglob("*.py"))
    return sorted(
        path.as_posix() for path in paths if "site-packages" not in path.parts and _SLASH not in path.as_posix()
    )


def stage(corpus: Path, directory: Path) -> Path:
    """Make a flat directory of links to the documents, because Spark skips files and directories that begin with _.

    Links that exist stay, so a driver that restarts sees the same files.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for document in documents_of(corpus):
        link = directory / (_PREFIX + document.replace("/", _SLASH))
        if not link.is_symlink():
            os.symlink(corpus.resolve() / document, link)
    return directory


def document_of(file_name: str) -> str:
    """Return the document that a staged link stands for."""
    return file_name.removeprefix(_PREFIX).replace(_SLASH, "/")


def postings(text: str) -> dict[str, list[int]]:
    """word → its positions (0 for the first word of the text), in order of first appearance."""
    places: dict[str, list[int]] = {}
    for place, term in enumerate(_WORD.findall(text)):
        places.setdefault(term, []).append(place)
    return places
