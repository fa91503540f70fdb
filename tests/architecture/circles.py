"""Circles of imports between siblings: modules and packages that stand in the same directory."""

from __future__ import annotations

from collections.abc import Iterable

Circles = dict[str, list[set[str]]]
"""Package, empty for the root → the sets of its members that import each other in a circle."""


def circles(imports: Iterable[tuple[str, str]]) -> Circles:
    """Return the circles of pairs (importer, imported) of dotted names, also those of packages by what is in them."""
    packages: dict[str, dict[str, set[str]]] = {}
    for importer, imported in imports:
        ours, theirs = importer.split("."), imported.split(".")
        depth = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), None)
        if depth is not None:
            edges = packages.setdefault(".".join(ours[:depth]), {})
            edges.setdefault(ours[depth], set()).add(theirs[depth])
    every = {package: _of_siblings(edges) for package, edges in sorted(packages.items())}
    return {package: sets for package, sets in every.items() if sets}


def _of_siblings(edges: dict[str, set[str]]) -> list[set[str]]:
    reached = {name: _reached(edges, name) for name in sorted(edges)}
    sets = [{other for other in ours if name in reached.get(other, ())} for name, ours in reached.items()]
    return [members for place, members in enumerate(sets) if members and members not in sets[:place]]


def _reached(edges: dict[str, set[str]], name: str) -> set[str]:
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        new = edges.get(waiting.pop(), set()) - reached
        reached |= new
        waiting.extend(new)
    return reached
