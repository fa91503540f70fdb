"""The code archive of a run, which is one zip file in the job directory, named by the digest of its bytes.

The archive contains the source of the pipeline file and of each user module that the file can reach, and
`manifest.json`. The manifest lists the origin of each source, the code that could not be archived (with its version),
the plan, the Python version, and the version of this package. An archive is created once and never changed. It is read
as data: nothing in it is unpickled, and sizes are checked before anything is read.
"""

from __future__ import annotations

import ast
import json
import os
import platform
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any

from causal.errors import CorruptData, PipelineError
from causal.storage.files import make_directory, sync_directory

DIRECTORY = "code"
MANIFEST = "manifest.json"

MODULES_MAX = 2_000
BYTES_MAX = 32 << 20
"""The limit on the total size of all sources of a run."""
MANIFEST_BYTES_MAX = 4 << 20
DIGEST_BYTES = 16

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every archive member; it is constant so that equal code results in an equal archive."""


@dataclass(frozen=True, slots=True)
class Module:
    """One source file."""

    name: str
    """The name under which the module is imported; "" for the pipeline file."""
    path: str
    """The absolute path from which the source was read; `__file__` and tracebacks show this path."""
    package: bool
    source: bytes


@dataclass(frozen=True, slots=True)
class Archive:
    """The code of a run.

    Attributes:
        modules: the pipeline file, followed by the other modules in name order.
        outside: module → version or digest, for code that is used but not archived (installed and native modules).
        plan: the output of `causal plan --json` at the time the code was archived.
        python: the Python version.
        runtime: the version of this package.
    """

    modules: tuple[Module, ...]
    outside: Mapping[str, str] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    python: str = field(default_factory=platform.python_version)
    runtime: str = field(default_factory=lambda: runtime_version())

    @property
    def pipeline(self) -> Module:
        return self.modules[0]

    @property
    def root(self) -> Path:
        """The directory that contained the pipeline file when the code was archived."""
        return Path(self.pipeline.path).parent

    def shown(self, module: Module) -> str:
        """Return a module's file name for display, relative to the pipeline's directory if the file is inside it."""
        path = Path(module.path)
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    @property
    def digest(self) -> str:
        """The digest of the packed archive, which names the archive file."""
        return digest_of(self.packed())

    def check_size(self) -> None:
        """Raise `PipelineError` if the code is too large to archive."""
        size = sum(len(module.source) for module in self.modules)
        if len(self.modules) > MODULES_MAX or size > BYTES_MAX:
            largest = max(self.modules, key=lambda module: len(module.source))
            raise PipelineError(
                f"{self.pipeline.path} imports {len(self.modules)} modules with {size:,} bytes, of which "
                f"{self.shown(largest)} is the largest; at most {MODULES_MAX} modules with {BYTES_MAX:,} bytes "
                "can be archived with a run: install modules that are not part of the pipeline as a package"
            )

    def packed(self) -> bytes:
        """Return the content of the archive file."""
        members = [("pipeline.py" if not m.name else _member(m), m) for m in self.modules]
        manifest = {
            "modules": [[member, m.name, m.path, m.package] for member, m in members],
            "outside": dict(self.outside),
            "plan": dict(self.plan),
            "python": self.python,
            "runtime": self.runtime,
        }
        body = BytesIO()
        with zipfile.ZipFile(body, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo(MANIFEST, _EPOCH), json.dumps(manifest, indent=1, sort_keys=True))
            for member, module in members:
                archive.writestr(zipfile.ZipInfo(member, _EPOCH), module.source)
        return body.getvalue()

    def save(self, job: Path, durable: bool) -> str:
        """Write the archive into a job directory unless it already exists there, and return its digest.

        Args:
            durable: whether the file must survive a power failure.
        """
        self.check_size()
        body = self.packed()
        digest = digest_of(body)
        if not path_of(job, digest).exists():
            _write(path_of(job, digest), body, durable)
        return digest

    @classmethod
    def received(cls, job: Path, digest: str, body: bytes, where: str) -> Archive:
        """Write an archive that was read from the shared store into a job directory, and return it.

        Raises:
            CorruptData: as `unpacked`.
        """
        archive = cls.unpacked(body, digest, where)
        _write(path_of(job, digest), body, durable=False)
        return archive

    @classmethod
    def load(cls, job: Path, digest: str) -> Archive:
        """Read the archive with the given digest.

        Raises:
            CorruptData: the archive is missing, damaged, or larger than the size limit.
        """
        path = path_of(job, digest)
        try:
            if path.stat().st_size > BYTES_MAX + 2 * MANIFEST_BYTES_MAX:
                raise ValueError("it exceeds the size limit of an archive")
            body = path.read_bytes()
        except FileNotFoundError:
            raise CorruptData(f"{path}, the code of the run, is missing; restore it from a copy") from None
        except (OSError, ValueError) as problem:
            raise CorruptData(f"{path}, the code of the run, is damaged ({problem}); restore it from a copy") from None
        return cls.unpacked(body, digest, str(path))

    @classmethod
    def unpacked(cls, body: bytes, digest: str, where: str) -> Archive:
        """Return the archive that `body` contains.

        Raises:
            CorruptData: `body` does not match the digest or is damaged; the message refers to the archive as `where`.
        """
        try:
            if digest_of(body) != digest:
                raise ValueError("its digest does not match")
            return _unpacked(body)
        except (ValueError, KeyError, TypeError, RecursionError, zipfile.BadZipFile) as problem:
            raise CorruptData(f"{where}, the code of the run, is damaged ({problem}); restore it from a copy") from None

    def with_plan(self, plan: Mapping[str, Any]) -> Archive:
        return replace(self, plan=plan)


def name_in_store(digest: str) -> str:
    """Return the name of the archive with the given digest in the shared store."""
    return f"{DIRECTORY}/{digest}.zip"


def _write(path: Path, body: bytes, durable: bool) -> None:
    make_directory(path.parent, durable)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(fresh, "wb") as file:
        file.write(body)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    os.replace(fresh, path)
    if durable:
        sync_directory(path.parent)


def path_of(job: Path, digest: str) -> Path:
    """Return the path of a job's archive with the given digest."""
    return job / DIRECTORY / f"{digest}.zip"


def digest_of(body: bytes) -> str:
    return blake2b(body, digest_size=DIGEST_BYTES).hexdigest()


def runtime_version() -> str:
    """Return the version of this package, or "checkout" if it is not installed."""
    from importlib import metadata  # imported here because only a new archive needs it

    try:
        return metadata.version("causal-streams")
    except metadata.PackageNotFoundError:
        return "checkout"


def minor(python: str) -> str:
    """Return the minor version for a full Python version, for example `3.11` for `3.11.4`."""
    return ".".join(python.split(".")[:2])


def changed(kept: Archive, now: Archive) -> list[str]:
    """Return the names of files that differ between two pipeline versions in more than comments and layout."""
    before, after = ({module.name: module for module in each.modules} for each in (kept, now))
    names: list[str] = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            names.append(f"{kept.shown(before[name])} (no longer used)")
        elif name not in before:
            names.append(f"{now.shown(after[name])} (new)")
        elif not same_code(before[name].source, after[name].source):
            names.append(now.shown(after[name]))
    return names


def other_versions(kept: Archive, now: Archive) -> Iterator[str]:
    """Yield a phrase for each version difference in the code that is not archived."""
    if kept.python != now.python:
        yield f"Python was {kept.python} and is {now.python}"
    if kept.runtime != now.runtime:
        yield f"causal-streams was {kept.runtime} and is {now.runtime}"
    for name, version in sorted(kept.outside.items()):
        if name in now.outside and now.outside[name] != version:
            yield f"{name} was {version} and is {now.outside[name]}"


def same_code(one: bytes, other: bytes) -> bool:
    """Return whether two sources are equal except for comments, blank lines and layout."""
    if one == other:
        return True
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _member(module: Module) -> str:
    return f"modules/{module.name.replace('.', '/')}{'/__init__' if module.package else ''}.py"


def _unpacked(body: bytes) -> Archive:
    with zipfile.ZipFile(BytesIO(body)) as archive:
        infos = {info.filename: info for info in archive.infolist()}
        if len(infos) > MODULES_MAX + 1 or sum(info.file_size for info in infos.values()) > len(body):
            raise ValueError("its content exceeds the size limit of an archive")
        if any(info.compress_type != zipfile.ZIP_STORED for info in infos.values()):
            raise ValueError("its members are compressed")
        manifest = json.loads(archive.read(MANIFEST))
        modules = tuple(
            Module(str(name), str(path), bool(package), archive.read(infos[member]))
            for member, name, path, package in manifest["modules"]
        )
    if not modules or modules[0].name:
        raise ValueError("it does not contain a pipeline file")
    return Archive(modules, manifest["outside"], manifest["plan"], manifest["python"], manifest["runtime"])
