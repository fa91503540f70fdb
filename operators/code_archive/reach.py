"""A search for the modules that a pipeline can import, including imports in functions that run later."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

from operators.code_archive.archive import MODULES_MAX, Archive, Module
from operators.code_archive.importing import LiveFinder, of_user

_IMPORTING = frozenset(("import_module", "__import__"))


def archive_of(pipeline: Module, finder: LiveFinder) -> Archive:
    """Return an archive of the code of a pipeline that `finder` has loaded and of the code that it may still import.

    Raises:
        PipelineError: the code is too large, or a file cannot be read.
    """
    todo = [pipeline, *finder.read.values()]
    seen = {module.name for module in todo}
    while todo:
        module = todo.pop()
        for name in _named(module):
            _find(name, finder)
        todo += [module_read for name, module_read in finder.read.items() if name not in seen]
        seen |= finder.read.keys()
        if len(seen) > MODULES_MAX:
            break
    archive = Archive((pipeline, *(finder.read[name] for name in sorted(finder.read))))
    archive.check_size()
    outside = {name: _version(name, Path(origin)) for name, origin in sorted(finder.outside.items())}
    return Archive(archive.modules, outside)


def versions_now(kept: Archive) -> Archive:
    """Return an archive of the same code with the versions of unarchived code that this process would import."""
    finder = LiveFinder(kept.root, recording=True)
    for name in kept.outside:
        _find(name, finder)
    outside = {name: _version(name, Path(finder.outside[name])) for name in kept.outside if name in finder.outside}
    return Archive(kept.modules, outside)


def hidden_by_python(archive: Archive) -> list[str]:
    """Return the files in the pipeline's directory that imports probably mean but the standard library hides."""
    named = {name.partition(".")[0] for module in archive.modules for name in _named(module)}
    places = ((name, archive.root / f"{name}.py") for name in sorted(named & sys.stdlib_module_names))
    return [path.name for _, path in places if path.exists()]


def _find(name: str, finder: LiveFinder) -> None:
    """Make the finder locate a module and its parent packages without running any of them."""
    path: Sequence[str] | None = None
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        at = ".".join(parts[:depth])
        if not of_user(at):
            return
        try:
            spec = finder.spec_in(at, path)
        except (ImportError, AttributeError, ValueError):  # the import of such a module fails when it is executed
            return
        if spec is None or spec.submodule_search_locations is None:
            return
        if at in finder.outside:
            return
        path = list(spec.submodule_search_locations)


def _named(module: Module) -> Iterator[str]:
    """Yield the names in the import statements of a source that are modules or may be modules."""
    try:
        tree = ast.parse(module.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # the source is archived unchanged and reports the error when it runs
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            base = _base(module, node)
            if base is not None:
                for alias in node.names:
                    yield f"{base}.{alias.name}" if base else alias.name
                yield base
        elif isinstance(node, ast.Call) and node.args and _called(node.func) in _IMPORTING:
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str) and argument.value.strip("."):
                yield argument.value.lstrip(".")


def _base(module: Module, node: ast.ImportFrom) -> str | None:
    """Return the package that a `from … import` names, or None if a relative import leaves the top-level package."""
    if not node.level:
        return node.module
    parts = module.name.split(".") if module.name else []
    up = node.level - (1 if module.package else 0)
    if up > len(parts):
        return None
    package = parts[: len(parts) - up]
    parts_imported = [*package, *(node.module.split(".") if node.module else [])]
    return ".".join(parts_imported) or None


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _version(name: str, origin: Path) -> str:
    """Return the version of an installed package; for any other code, return the digest of its file."""
    from importlib import metadata  # imported here because only a new archive needs it

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
    try:
        with open(origin, "rb") as file:
            digest = blake2b(digest_size=8)
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return "unknown"
    return f"file {digest.hexdigest()}"
