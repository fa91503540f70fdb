"""The container of a bundle file (0058): a zip file with named parts, and a manifest with the digest of each.

It comes from anybody, so nothing in it is trusted: the directory of the zip file is checked before it is read, sizes
are checked before memory is taken, names cannot lead elsewhere, and nothing is extracted by name or unpickled. Equal
parts make an equal file.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from io import SEEK_CUR
from pathlib import Path
from typing import Any

from causal.errors import CorruptData, PipelineError
from causal.sealed import seal, unseal

FORMAT = 1
"""The version of the format; a bundle file with another one is refused."""
KIND = "causal-bundle"
SUFFIX = ".causal"
MANIFEST = "manifest.json"
BYTES_MAX = 64 << 20
"""The default bound on the size of a new bundle file."""
CONTENT_BYTES_MAX = 1 << 30
"""The bound on the size of all parts of any bundle file."""
MANIFEST_BYTES_MAX = 16 << 20
PARTS_MAX = 60_000

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every part."""
_END = struct.Struct("<4s4H2LH")
"""The end of a zip file without a comment: signature, disks, numbers of parts, size and place of the directory."""
_END_MAGIC = b"PK\5\6"
_LOCAL = struct.Struct("<4s22x2H")
"""The header of a part: a signature, facts that the directory also states, the sizes of its name and other fields."""
_LOCAL_MAGIC = b"PK\3\4"
_DIRECTORY_ENTRY_BYTES_MAX = 1_024
_RATIO_MAX = 1_032
"""The most that DEFLATE can shrink anything."""
_NAME = re.compile(r"[A-Za-z0-9_.,=@+-]{1,255}(/[A-Za-z0-9_.,=@+-]{1,255}){0,7}")
_WRITTEN_LEVEL = 6


def write_bundle_file(path: Path, facts: Mapping[str, Any], parts: Iterable[tuple[str, bytes]], bytes_max: int) -> int:
    """Write a bundle file in one step, and return its size in bytes.

    Args:
        parts: the name and content of each part, in any order; each is in memory only while it is written.
        bytes_max: the bound on the size of the file.

    Raises:
        PipelineError: it exceeds a bound, or cannot be written; no part of it stays.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    known: dict[str, list[Any]] = {}
    content_bytes = 0
    try:
        with open(aside, "xb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_WRITTEN_LEVEL) as archive:
                for name, content in parts:
                    known[name] = [len(content), _digest(content)]
                    content_bytes += len(content)
                    _write(archive, name, content)
                    _check_written(file.seek(0, SEEK_CUR), content_bytes, len(known), bytes_max)
                _write(archive, MANIFEST, seal({**facts, "kind": KIND, "format": FORMAT, "parts": known}).encode())
            size = file.seek(0, SEEK_CUR)
            _check_written(size, content_bytes, len(known), bytes_max)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as problem:
        raise PipelineError(f"{path}: cannot be written: {problem.strerror or problem}") from None
    finally:
        aside.unlink(missing_ok=True)
    return size


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    part = zipfile.ZipInfo(name, _EPOCH)
    part.compress_type = zipfile.ZIP_DEFLATED
    part.external_attr = 0o600 << 16
    archive.writestr(part, content)


def _check_written(size: int, content_bytes: int, parts: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise PipelineError(
            f"the bundle exceeds {bytes_max:,} bytes; choose a later or shorter part of the recording with --epoch, a "
            "task further upstream with --task, or raise --max-size"
        )
    if content_bytes > CONTENT_BYTES_MAX or parts > PARTS_MAX:
        raise PipelineError(
            f"the bundle has {parts:,} parts with {content_bytes:,} bytes, and at most {PARTS_MAX:,} with "
            f"{CONTENT_BYTES_MAX:,} can be read; choose a shorter part of the recording with --epoch, or a task "
            "further upstream with --task"
        )


class BundleFile:
    """A bundle file that has been opened for reading.

    Attributes:
        facts: its manifest.
        sizes: the name of each part → its size in bytes.

    Raises:
        PipelineError: the file does not exist, or cannot be read.
        CorruptData: it is no bundle file, is damaged, or has another format.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if not path.is_file():
                raise PipelineError(f"{path}: there is no such bundle file; make one with `causal bundle`")
            self._file = open(path, "rb", buffering=0)
            _check_end(self._file.fileno(), os.fstat(self._file.fileno()).st_size)
            with zipfile.ZipFile(path) as archive:
                self._parts = _listed(archive)
            self.facts = self._manifest()
        except OSError as problem:
            raise PipelineError(f"{path}: cannot be read: {problem.strerror or problem}") from None
        except _UNREADABLE as problem:
            raise self._damaged(str(problem)) from None
        self._known: Mapping[str, tuple[int, str]] = {
            name: (size, digest) for name, (size, digest) in self.facts["parts"].items()
        }
        self.sizes = {name: size for name, (size, _) in self._known.items()}

    def read(self, name: str) -> bytes:
        """Return the content of a part.

        Raises:
            KeyError: there is no such part.
            CorruptData: the part is damaged.
        """
        size, digest = self._known[name]
        try:
            content = self._content(name)
        except (OSError, *_UNREADABLE) as problem:
            raise self._damaged(f"{name}: {problem}") from None
        if len(content) != size or _digest(content) != digest:
            raise self._damaged(f"{name} does not match its digest")
        return content

    def _manifest(self) -> dict[str, Any]:
        manifest = self._parts.get(MANIFEST)
        if manifest is None or manifest.file_size > MANIFEST_BYTES_MAX:
            raise ValueError("it has no manifest")
        text = self._content(MANIFEST).decode()
        raw = json.loads(text)
        if type(raw) is not dict or raw.get("kind") != KIND or "digest" not in raw:
            raise ValueError("its manifest is of something else")
        if raw.get("format") != FORMAT:
            raise CorruptData(
                f"{self.path} has format {raw.get('format')!r:.20} and this version reads {FORMAT}; replay it with the "
                f"version of causal-streams that made it ({raw.get('runtime')!r:.40})"
            )
        facts = unseal(text)
        for name, (size, digest) in facts["parts"].items():
            if name not in self._parts or type(size) is not int or type(digest) is not str:
                raise ValueError(f"its part {name!r:.100} is missing")
            if size != self._parts[name].file_size:
                raise ValueError(f"its part {name} has another size than its manifest states")
        if len(facts["parts"]) != len(self._parts) - 1:
            raise ValueError("it has parts that its manifest does not name")
        return facts

    def _content(self, name: str) -> bytes:
        """Return a part; forks of this process may read at the same time, so the file has no position."""
        part, file = self._parts[name], self._file.fileno()
        head = os.pread(file, _LOCAL.size, part.header_offset)
        magic, name_bytes, extra_bytes = _LOCAL.unpack(head)
        if magic != _LOCAL_MAGIC:
            raise ValueError("its directory names another place")
        begin = part.header_offset + _LOCAL.size + name_bytes + extra_bytes
        packed = os.pread(file, part.compress_size, begin)
        content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, part.file_size + 1)
        if len(content) != part.file_size:
            raise ValueError("it is of another size than it states")
        return content

    def _damaged(self, why: str) -> CorruptData:
        return CorruptData(f"{self.path} is no complete bundle file ({why}); copy it again, or make it again")


_UNREADABLE = (
    ValueError, KeyError, TypeError, AttributeError, RecursionError, EOFError, RuntimeError, NotImplementedError,
    zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip
"""The errors of `zipfile`, and of a manifest of another form, for a damaged file."""


def is_part_name(name: str) -> bool:
    """Return whether a part may have this name: a relative path that does not leave its directory."""
    return _NAME.fullmatch(name) is not None and not any(each.strip(".") == "" for each in name.split("/"))


def _listed(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the parts by name, whose names and sizes have been checked."""
    parts: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for part in archive.infolist():
        name = part.orig_filename
        if not is_part_name(name) or name != part.filename or name in parts:
            raise ValueError(f"it has a part named {name!r:.100}")
        if (part.external_attr >> 16) & 0o170000 not in (0, 0o100000):
            raise ValueError(f"its part {name} is not a file")
        if part.compress_type != zipfile.ZIP_DEFLATED or part.flag_bits & 1:
            raise ValueError(f"its part {name} is encrypted, or packed in another way")
        total += part.file_size
        if part.file_size > _RATIO_MAX * (part.compress_size + 1) or total > CONTENT_BYTES_MAX:
            raise ValueError(f"its part {name} states {part.file_size:,} bytes")
        parts[name] = part
    return parts


def _check_end(file: int, size: int) -> None:
    """Check that the file ends with the end of a zip file whose directory has a bounded size.

    Raises:
        ValueError: it does not.
    """
    end = os.pread(file, _END.size, max(0, size - _END.size))
    if len(end) < _END.size or end[:4] != _END_MAGIC:
        raise ValueError("it does not end as one")
    _, disk, first, here, count, directory_bytes, place, comment_bytes = _END.unpack(end)
    if disk or first or comment_bytes or here != count or place + directory_bytes + _END.size != size:
        raise ValueError("its end states another size")
    if count > PARTS_MAX + 1 or directory_bytes > count * _DIRECTORY_ENTRY_BYTES_MAX:
        raise ValueError(f"it states {count:,} parts")


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()
