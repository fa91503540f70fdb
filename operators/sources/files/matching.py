"""The files that match patterns: each file exactly once, whatever names lead to it, and none omitted silently.

A pattern has the syntax of `glob.glob`: `*`, `?` and `[…]` within a part of the path, `**` for any directories.

    a part that begins with `.` or `_`   matches only if the pattern's part begins with the same character
    a symbolic link                      counts as its target; a file's name that is not a link takes precedence
    a hard link                          counts as a separate file
    `**`                                 enters each directory once, even if links lead to it or form a cycle
    a path that must not be listed       ends the search with an error; files that were just removed are skipped
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from causal.errors import OperatorFailed

MAGIC = re.compile(r"[*?[]")
"""The beginning of a wildcard."""
_GONE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP))
HIDDEN = ("_", ".")
"""The first characters of names that only a pattern's part with the same first character matches."""


@dataclass(frozen=True, slots=True)
class Match:
    """A path that matches a pattern.

    Attributes:
        real: the same path with all symbolic links resolved.
    """

    path: str
    real: str


def matches(patterns: Sequence[str]) -> list[Match]:
    """Return the regular files that match these absolute patterns, each once, in the byte order of their paths.

    Raises:
        OperatorFailed: the job's user may not read a directory or inspect a path.
        OSError: a directory cannot be read, or a path cannot be inspected, now.
    """
    chosen: dict[str, tuple[bool, Match]] = {}
    for pattern in patterns:
        directory = fixed(pattern)
        root = os.path.realpath(directory)
        for path, linked in _paths(pattern, directory):
            real = os.path.realpath(path) if linked else root + path[len(directory) :]
            known = chosen.get(real)
            if known is None or (linked, path) < (known[0], known[1].path):
                chosen[real] = linked, Match(path, real)
    return sorted((match for _, match in chosen.values()), key=lambda match: os.fsencode(match.path))


def fixed(pattern: str) -> str:
    """Return the directory that precedes the pattern's first wildcard."""
    directory = os.path.dirname(pattern)
    while MAGIC.search(directory):
        directory = os.path.dirname(directory)
    return directory


def regular(path: str) -> os.stat_result | None:
    """Return the status of a regular file, or None for anything else, a removed file or a dangling link."""
    try:
        known = os.stat(path)
    except OSError as problem:
        if problem.errno in _GONE:
            return None
        raise _refused(path, problem) from None
    return known if stat.S_ISREG(known.st_mode) else None


def denied(path: str, problem: OSError) -> str:
    """Return the message for a path that the job's user may not read."""
    return f"{path} cannot be read: {problem.strerror}; grant the job's user permission to read it, then resume"


def _refused(path: str, problem: OSError) -> Exception:
    """Return the exception for a path that cannot be inspected."""
    if not isinstance(problem, PermissionError):
        return problem
    shown = os.fsencode(path).decode("utf-8", "replace")
    return OperatorFailed(f"{denied(shown, problem)}, or narrow the pattern")


def _paths(pattern: str, directory: str) -> Iterator[tuple[str, bool]]:
    """Yield the regular files of one pattern, and whether the path after its fixed directory contains a link."""
    if not MAGIC.search(pattern):
        if regular(pattern) is not None:
            yield pattern, True
    elif os.path.isfile(pattern):  # the file's name contains wildcard characters
        yield pattern, True
    else:
        parts = os.path.relpath(pattern, directory).split(os.sep)
        once = [part for place, part in enumerate(parts) if parts[place : place + 2] != ["**", "**"]]
        yield from _below(directory, once, False)


def _below(directory: str, parts: Sequence[str], linked: bool) -> Iterator[tuple[str, bool]]:
    """Yield the files below a directory that match the given parts of a pattern."""
    part, rest = parts[0], parts[1:]
    if part == "**":
        for below, through_link in _directories(directory, linked):
            yield from _below(below, rest or ["*"], through_link)
    elif not MAGIC.search(part):
        path = os.path.join(directory, part)
        kind = _kind(path)
        if kind is not None and (rest or regular(path) is not None):
            yield from _further(path, rest, linked or stat.S_ISLNK(kind))
    else:
        fits = suits(part)
        for entry in _entries(directory):
            if fits(entry.name) and (rest or _is_file(entry)):
                yield from _further(entry.path, rest, linked or entry.is_symlink())


def _further(path: str, rest: Sequence[str], linked: bool) -> Iterator[tuple[str, bool]]:
    if not rest:
        yield path, linked
    elif _is_directory(path):
        yield from _below(path, rest, linked)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Return whether the entry is a regular file, which most file systems report without a separate request."""
    return entry.is_file(follow_symlinks=False) or (entry.is_symlink() and regular(entry.path) is not None)


def _directories(top: str, linked: bool) -> Iterator[tuple[str, bool]]:
    """Yield a directory and all directories below it, each once, beginning with those reached without links."""
    seen: set[tuple[int, int]] = set()
    plain, links = [(top, linked)], list[tuple[str, bool]]()
    while plain or links:
        path, through_link = plain.pop() if plain else links.pop(0)
        known = _stat(path)
        if known is None or not stat.S_ISDIR(known.st_mode) or (known.st_dev, known.st_ino) in seen:
            continue
        seen.add((known.st_dev, known.st_ino))
        yield path, through_link
        for entry in _entries(path):
            if not entry.name.startswith(HIDDEN):
                if entry.is_symlink():
                    links.append((entry.path, True))
                elif entry.is_dir(follow_symlinks=False):
                    plain.append((entry.path, through_link))


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: os.fsencode(entry.name))
    except OSError as problem:
        if problem.errno in _GONE:
            return []
        raise _refused(directory, problem) from None


def suits(part: str) -> Callable[[str], bool]:
    """Return a function of a name that returns whether the name matches a pattern's part."""
    match = re.compile(fnmatch.translate(part)).match
    hidden = tuple(each for each in HIDDEN if not part.startswith(each))
    return lambda name: match(name) is not None and not name.startswith(hidden)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError as problem:
        if problem.errno in _GONE:
            return None
        raise _refused(path, problem) from None


def _is_directory(path: str) -> bool:
    known = _stat(path)
    return known is not None and stat.S_ISDIR(known.st_mode)


def _kind(path: str) -> int | None:
    """Return the mode of the entry at a path, or None if there is no entry."""
    try:
        return os.lstat(path).st_mode
    except OSError as problem:
        if problem.errno in _GONE:
            return None
        raise _refused(path, problem) from None
