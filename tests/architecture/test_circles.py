"""Circles of imports, those for types alone included, which the contracts of setup.cfg do not see."""

from __future__ import annotations

from collections.abc import Iterator

from tests.architecture.circles import circles
from tests.architecture.source import modules

KNOWN = {
    "operators.builder": [{"pipeline", "streams"}],
    "operators.builder.streams": [
        set(
            "calling folding joining per_record stream stream_base table tables timing user_operators windowing".split()
        )
    ],
}
"""The circles that are left.  Each goes through an import under `TYPE_CHECKING`; entries are removed, never added."""


def imports() -> Iterator[tuple[str, str]]:
    """(importer, imported) of all shipped modules, wherever in a file the import is."""
    names = {module.name for module in modules()}
    for module in modules():
        for _, imported in module.imports():
            target = imported if imported in names else imported.rpartition(".")[0]
            if target in names and target != module.name:
                yield module.name, target


def test_no_circle_is_added_and_one_that_is_opened_leaves_the_list() -> None:
    assert circles(imports()) == KNOWN


def test_a_circle_is_found_between_modules_and_between_packages() -> None:
    assert circles([("a.b", "a.c"), ("a.c", "a.d"), ("a.d", "a.b"), ("a.e", "a.b")]) == {"a": [{"b", "c", "d"}]}
    assert circles([("a.b.c", "a.d.e"), ("a.d.f", "a.b.g")]) == {"a": [{"b", "d"}]}
    assert circles([("a.b", "a.c"), ("a.c", "a.d"), ("x.y", "a.b")]) == {}
    assert circles([("a", "b"), ("b", "a")]) == {"": [{"a", "b"}]}
