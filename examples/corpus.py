"""The corpus of the inverted index: which documents there are, and their words; shared with its check."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]

_WORD = re.compile(r"[A-Za-z_]\w*")
_PREFIX, _SLASH = "doc=", "="


def documents_of(corpus: Path) -> list[str]:
    """Paths, relative to `corpus`, of every `*.py` file below it; installed packages do not belong to it."""
    found = (path.relative_to(corpus) for path in corpus.rglob("*.py"))
    return sorted(
        path.as_posix() for path in found if "site-packages" not in path.parts and _SLASH not in path.as_posix()
    )


def stage(corpus: Path, directory: Path) -> Path:
    """A flat directory of links to the documents, for Spark: it skips files and directories whose name begins with _.

    Links that are there already stay, so a driver that starts again sees the same files.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for document in documents_of(corpus):
        link = directory / (_PREFIX + document.replace("/", _SLASH))
        if not link.is_symlink():
            os.symlink(corpus.resolve() / document, link)
    return directory


def document_of(file_name: str) -> str:
    """The document that a staged link stands for."""
    return file_name.removeprefix(_PREFIX).replace(_SLASH, "/")


def postings(text: str) -> dict[str, list[int]]:
    """word → positions (the how-manieth words of the text it is), in order of first appearance."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(_WORD.findall(text)):
        places.setdefault(word, []).append(place)
    return places
