"""Separation of modules when one process loads pipelines from several directories, as tests do.

Two pipelines may each import a module with the same name, such as `helpers`, from their own directories, but
`sys.modules` can contain only one of these modules. While a pipeline is being loaded or run, the modules of other
pipelines are set aside if the pipeline's directory contains modules with the same names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from operators.code_archive.importing import OUR_OWN, LiveFinder, is_source_of_user, of_user


class Beside:
    """The modules in one pipeline's directory that cannot stay in `sys.modules` permanently."""

    def __init__(self, finder: LiveFinder) -> None:
        self._finder = finder
        self._own: dict[str, ModuleType] = {}

    @contextmanager
    def first(self) -> Iterator[None]:
        """Search only this pipeline's directory for imports, of all pipelines' directories, until the context ends."""
        root, finders = self._finder.root, list(sys.meta_path)
        others = {name for name, module in list(sys.modules.items()) if _in_the_way(root, name, module)}
        aside = _taken(others)
        sys.modules.update(self._own)
        sys.meta_path[:] = [self._finder, *[each for each in finders if not isinstance(each, LiveFinder)]]
        try:
            yield
        finally:
            sys.meta_path[:] = finders
            self._own = _taken(others)
            sys.modules.update(aside)


def _taken(tops: set[str]) -> dict[str, ModuleType]:
    """Remove the modules and packages with these names, including all modules in the packages, and return them."""
    names = [name for name in sys.modules if name.partition(".")[0] in tops] if tops else []
    return {name: sys.modules.pop(name) for name in names}


def _in_the_way(root: Path, name: str, module: ModuleType | None) -> bool:
    """Return whether a loaded module shadows a module of the same name in `root`."""
    if "." in name or name.startswith("__") or name in OUR_OWN or not of_user(name):
        return False
    file = getattr(module, "__file__", None)
    if file is None:
        places = list(getattr(module, "__path__", ()))
        return bool(places) and (root / name).is_dir() and not any(_same(root / name, place) for place in places)
    beside = next((each for each in (root / name / "__init__.py", root / f"{name}.py") if each.is_file()), None)
    return beside is not None and is_source_of_user(file) and not _same(beside, file)


def _same(one: Path, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
