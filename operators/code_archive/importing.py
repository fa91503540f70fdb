"""Imports of user modules, from the disk while a run begins and from the archive afterwards.

A finder that precedes Python's own finders handles user modules only. A file in the pipeline's directory never hides a
module of the standard library or of this package, and `sys.path` is not changed.
"""

from __future__ import annotations

import linecache
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.abc import MetaPathFinder
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import decode_source, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from causal.errors import PipelineError
from operators.code_archive.archive import Archive, Module

HOME = Path(__file__).resolve().parents[2]
"""The directory that contains this project's packages."""

OURS = frozenset(("causal", "operators", "pyspark_causal"))
"""Our packages that pipelines import; these names always mean our packages, even if user modules share them."""

OUR_OWN = frozenset(("benchmarks", "deploy", "docs", "examples", "standby", "tests"))
"""Other packages in `HOME`; user modules may have the same names."""

_PYTHON = (BuiltinImporter, FrozenImporter, PathFinder)
_SOURCE_BYTES_MAX = 32 << 20


def of_user(name: str) -> bool:
    """Return whether a module named `name` may be a user module."""
    top = name.partition(".")[0]
    return top not in OURS and top not in sys.stdlib_module_names


@lru_cache(maxsize=4096)
def is_source_of_user(origin: str) -> bool:
    """Return whether a file is a user's source: not installed, and not in the standard library or this package."""
    path = Path(origin)
    if path.suffix != ".py" or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    if any(path.is_relative_to(place) for place in _library()):
        return False
    return not any(path.is_relative_to(HOME / name) for name in (*OURS, "deploy", "standby"))


@lru_cache(maxsize=1)
def _library() -> tuple[str, ...]:
    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})


class Loader(SourceFileLoader):
    """A loader that runs source code from memory as if it had been read from its file.

    The data files of a package are read from their original location, because they are not archived.
    """

    def __init__(self, module: Module) -> None:
        super().__init__(module.name, module.path)
        self.module = module

    def get_code(self, fullname: str) -> CodeType | None:
        show_lines(self.module)
        code: CodeType = compile(self.module.source, self.module.path, "exec", dont_inherit=True)
        return code

    def get_source(self, fullname: str) -> str:
        return decode_source(self.module.source)


def show_lines(module: Module) -> None:
    """Make tracebacks show the lines of this source, even if its file changes later."""
    try:
        text = decode_source(module.source)
    except (SyntaxError, UnicodeDecodeError):
        return  # compiling reports the error
    linecache.cache[module.path] = (len(module.source), None, text.splitlines(True), module.path)


class LiveFinder(MetaPathFinder):
    """A finder that searches the disk for modules, in the pipeline's directory first and then on Python's path.

    Args:
        root: the pipeline's directory.
        recording: whether to read each source only once and to keep the text that runs in `read`.
    """

    def __init__(self, root: Path, recording: bool) -> None:
        self.root = root
        self.recording = recording
        self.read: dict[str, Module] = {}
        """The user sources found so far, by module name."""
        self.outside: dict[str, str] = {}
        """The origins of the other modules that do not belong to Python itself, by top-level package name."""
        self._finding: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not of_user(fullname) or fullname in self._finding:
            return None
        return self.spec_in(fullname, path)

    def spec_in(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """Return the spec of a module; if this finder is recording, a user module will run the source read here."""
        self._finding.add(fullname)
        try:
            spec = self._on_disk(fullname, path)
        finally:
            self._finding.discard(fullname)
        if spec is None or not self.recording:
            return spec
        if spec.origin is None or not is_source_of_user(spec.origin) or not Path(spec.origin).is_file():
            if spec.origin is not None:
                self.outside.setdefault(fullname.partition(".")[0], spec.origin)
            return spec
        if fullname not in self.read:
            package = spec.submodule_search_locations is not None
            self.read[fullname] = Module(fullname, spec.origin, package, _bytes(Path(spec.origin)))
        return spec_of(self.read[fullname])

    def _on_disk(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, [str(self.root), *sys.path] if path is None else path)
        if spec is not None and spec.loader is None and spec.submodule_search_locations is not None:
            return spec_of_namespace(fullname, list(spec.submodule_search_locations))
        if spec is not None:
            return spec
        for finder in list(sys.meta_path):
            if finder not in _PYTHON and not isinstance(finder, (LiveFinder, ArchiveFinder)):
                spec = finder.find_spec(fullname, path, None)
                if spec is not None:
                    return spec
        return None


class ArchiveFinder(MetaPathFinder):
    """A finder of the modules in an archive; it refuses source modules of the user that are not archived."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._modules = {module.name: module for module in archive.modules if module.name}
        self._namespaces: dict[str, list[str]] = {}
        for name in sorted(self._modules):
            places = Path(self._modules[name].path).parents
            depth = 0 if not self._modules[name].package else 1
            while "." in name:
                name = name.rpartition(".")[0]
                if name not in self._modules:
                    locations = self._namespaces.setdefault(name, [])
                    if str(places[depth]) not in locations:
                        locations.append(str(places[depth]))
                depth += 1

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not of_user(fullname):
            return None
        module = self._modules.get(fullname)
        if module is not None:
            return spec_of(module)
        if fullname in self._namespaces:
            return spec_of_namespace(fullname, self._namespaces[fullname])
        return self._not_archived(fullname, path)

    def _not_archived(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """Find a native or installed module as usual; refuse a source that is not archived, because it could change."""
        places = [str(self.archive.root), *sys.path] if path is None else path
        spec = PathFinder.find_spec(fullname, places)
        if spec is None or spec.loader is None or spec.origin is None or not is_source_of_user(spec.origin):
            return spec if spec is not None and spec.loader is not None else None
        raise ModuleNotFoundError(
            f"{fullname} ({spec.origin}) is not in the archived code of this run, because no import statement "
            f"names it; import it in {Path(self.archive.pipeline.path).name} and start the job again",
            name=fullname,
        )


def spec_of(module: Module) -> ModuleSpec | None:
    places = [str(Path(module.path).parent)] if module.package else None
    return spec_from_file_location(module.name, module.path, loader=Loader(module), submodule_search_locations=places)


def spec_of_namespace(name: str, places: list[str]) -> ModuleSpec:
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = places
    return spec


def install(finder: LiveFinder | ArchiveFinder) -> None:
    """Make this process import user modules with `finder`.

    An `ArchiveFinder`, or a `LiveFinder` that records, replaces any earlier finders, and modules that were loaded
    through the earlier finders are not used again. If there was no earlier finder, the loaded modules are not even
    inspected, because that would copy memory that this process shares with other processes.
    """
    if isinstance(finder, ArchiveFinder) or finder.recording:
        before = [each for each in sys.meta_path if isinstance(each, (LiveFinder, ArchiveFinder))]
        for each in before:
            sys.meta_path.remove(each)
        read = [name for name, module in list(sys.modules.items()) if _is_read_here(module)] if before else []
        for name in read:
            del sys.modules[name]
        for name in {parent for each in read for parent in _parents(each)}:
            if getattr(sys.modules.get(name), "__file__", "") is None:  # a namespace, which has no loader of its own
                del sys.modules[name]
    else:
        for live in [each for each in sys.meta_path if isinstance(each, LiveFinder) and each.root == finder.root]:
            sys.meta_path.remove(live)
    sys.meta_path.insert(0, finder)


def _parents(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _is_read_here(module: ModuleType | None) -> bool:
    return isinstance(getattr(getattr(module, "__spec__", None), "loader", None), Loader)


def _is_from_home(module: ModuleType | None) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).is_relative_to(HOME) and not _is_read_here(module)


@contextmanager
def giving_way(root: Path, archive: Archive | None, lasting: bool) -> Iterator[None]:
    """During the context, allow user modules to have the names of this project's packages that pipelines do not import.

    Args:
        lasting: whether this process no longer needs those packages of this project.
    """
    archived = {module.name.partition(".")[0] for module in archive.modules} if archive is not None else set()
    wanted = {
        name
        for name in OUR_OWN
        if name in archived
        or archive is None
        and ((root / f"{name}.py").exists() or (root / name / "__init__.py").exists())
    }
    named = [name for name in list(sys.modules) if name.partition(".")[0] in wanted and root != HOME]
    ours = {name: sys.modules[name] for name in named if _is_from_home(sys.modules.get(name))}
    for name in ours:
        del sys.modules[name]
    try:
        yield
    finally:
        if not lasting:
            for name in [name for name in sys.modules if name.partition(".")[0] in wanted]:
                if ours:
                    del sys.modules[name]
            sys.modules.update(ours)


@contextmanager
def modules_kept() -> Iterator[None]:
    """Restore the user's modules when the context ends, regardless of which modules are loaded in the meantime."""
    finders = list(sys.meta_path)
    before = {name: module for name, module in sys.modules.items() if _is_read_here(module)}
    try:
        yield
    finally:
        sys.meta_path[:] = finders
        for name in [name for name, module in sys.modules.items() if _is_read_here(module)]:
            del sys.modules[name]
        sys.modules.update(before)


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > _SOURCE_BYTES_MAX:
            raise PipelineError(
                f"{path} has more than {_SOURCE_BYTES_MAX:,} bytes, the limit for one file in a code archive; "
                "split the file"
            )
        return path.read_bytes()
    except OSError as problem:
        raise PipelineError(f"{path} cannot be read: {problem.strerror or problem}") from None
