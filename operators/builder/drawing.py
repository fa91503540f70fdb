"""Drawings for notebooks: a pipeline graph as SVG, and the output of a trial run as HTML tables.

All functions are pure. The colours are inherited from the surrounding text, so the drawings also suit a dark notebook.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from causal.layers import placed
from operators.graph import Node, ordered

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 150, 44, 60, 22, 8
CHARACTERS_MAX = 20
"""The length of the longest name that fits in a box."""
ROWS_SHOWN = 20
CELL_CHARACTERS_MAX = 80


def graph_svg(nodes: Sequence[Node]) -> str:
    """Return the graph of these operators as SVG, drawn from left to right with dashed lines for keyed edges."""
    sorted_nodes = ordered(nodes)
    names = [node.name for node in sorted_nodes]
    keyed = {
        (edge.source.name, node.name): edge.key_of is not None
        for node in sorted_nodes
        for edge in node.edges
        if edge.source.name in names
    }
    edges = list(keyed)
    layout = placed(names, edges)
    where = {name: _corner(place) for name, place in layout.places.items()}
    places = [*layout.places.values(), *(place for way in layout.ways.values() for place in way)]
    right, bottom = _corner((max((p[0] for p in places), default=0), max((p[1] for p in places), default=0)))
    width, height = right + BOX_WIDTH + MARGIN, bottom + BOX_HEIGHT + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'fill="none" stroke="currentColor" font-family="sans-serif" font-size="13">'
    ]
    for edge in edges:
        points = [
            (where[edge[0]][0] + BOX_WIDTH, where[edge[0]][1] + BOX_HEIGHT // 2),
            *((x + BOX_WIDTH // 2, y + BOX_HEIGHT // 2) for x, y in map(_corner, layout.ways[edge])),
            (where[edge[1]][0], where[edge[1]][1] + BOX_HEIGHT // 2),
        ]
        line = " ".join(f"{x},{y}" for x, y in points)
        dashes = ' stroke-dasharray="5 3"' if keyed[edge] else ""
        x, y = points[-1]
        parts.append(f'<polyline points="{line}"{dashes}/><path d="M{x - 7},{y - 4} L{x},{y} L{x - 7},{y + 4}"/>')
    for node in sorted_nodes:
        x, y = where[node.name]
        tasks = f" × {node.parallelism}" if node.parallelism > 1 else ""
        name = node.name if len(node.name) <= CHARACTERS_MAX else f"{node.name[: CHARACTERS_MAX - 1]}…"
        parts.append(
            f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>'
            f'<g fill="currentColor" stroke="none"><text x="{x + 10}" y="{y + 19}" font-weight="bold">{escape(name)}'
            f'</text><text x="{x + 10}" y="{y + 35}" opacity="0.7">{escape(node.kind)}{tasks}</text></g>'
        )
    return "".join([*parts, "</svg>"])


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    return MARGIN + place[0] * (BOX_WIDTH + GAP_X), MARGIN + place[1] * (BOX_HEIGHT + GAP_Y)


def rows_html(rows: Mapping[str, Sequence[Any]]) -> str:
    """Return an HTML table for each sink; each table shows only the first rows."""
    return "".join(f"<p><b>{escape(sink)}</b>, {len(each):,} rows</p>{_table(each)}" for sink, each in rows.items())


def _table(rows: Sequence[Any]) -> str:
    shown = rows[:ROWS_SHOWN]
    columns = list(dict.fromkeys(name for row in shown if isinstance(row, Mapping) for name in row))
    if not shown:
        return ""
    if columns and all(isinstance(row, Mapping) for row in shown):
        head = "".join(f"<th>{escape(str(name))}</th>" for name in columns)
        body = [[_cell(row[name]) if name in row else "" for name in columns] for row in shown]
    else:
        width = max(len(row) if isinstance(row, (tuple, list)) else 1 for row in shown)
        head = "".join(f"<th>{place}</th>" for place in range(width))
        body = [[_cell(cell) for cell in (row if isinstance(row, (tuple, list)) else (row,))] for row in shown]
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in body)
    more = f"<p>and {len(rows) - len(shown):,} more</p>" if len(rows) > len(shown) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>{more}"


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return escape(text if len(text) <= CELL_CHARACTERS_MAX else f"{text[: CELL_CHARACTERS_MAX - 1]}…")
