"""No circles of imports, those for types alone included, which the contracts of setup.cfg do not see (design 0035)."""

from __future__ import annotations

from collections.abc import Iterator

from tests.architecture.circles import circles
from tests.architecture.source import modules


def imports() -> Iterator[tuple[str, str]]:
    """(importer, imported) of all shipped modules, wherever in a file the import is."""
    names = {module.name for module in modules()}
    for module in modules():
        for _, imported in module.imports():
            target = imported if imported in names else imported.rpartition(".")[0]
            if target in names and target != module.name:
                yield module.name, target


def test_no_siblings_import_one_another_in_a_circle() -> None:
    assert circles(imports()) == {}


def test_a_circle_is_found_between_modules_and_between_packages() -> None:
    assert circles([("a.b", "a.c"), ("a.c", "a.d"), ("a.d", "a.b"), ("a.e", "a.b")]) == {"a": [{"b", "c", "d"}]}
    assert circles([("a.b.c", "a.d.e"), ("a.d.f", "a.b.g")]) == {"a": [{"b", "d"}]}
    assert circles([("a.b", "a.c"), ("a.c", "a.d"), ("x.y", "a.b")]) == {}
    assert circles([("a", "b"), ("b", "a")]) == {"": [{"a", "b"}]}
