"""Lists the pages of a folder, with what each is about, in the index of that folder.

python docs/indexes.py           # rewrite the indexes; a test fails while they are not up to date
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = ("docs/guide/README.md", "docs/cookbook/index.md", "docs/design/README.md")
_PLACE = re.compile(r"(<!-- (\w+): made by docs/indexes.py -->\n).*?(<!-- end -->)", re.DOTALL)
_NAVIGATION = re.compile(r"^ +- (guide|cookbook|design)/([\w-]+\.md)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def _pages(folder: str) -> list[Path]:
    """Return the pages of a folder in the order of the navigation, without its index."""
    listed = _NAVIGATION.findall((ROOT / "mkdocs.yml").read_text())
    return [DOCS / folder / name for place, name in listed if place == folder and name not in ("README.md", "index.md")]


def _parts(page: Path) -> tuple[str, str, list[str]]:
    """Return the title of a page, its first paragraph in one line, and its sections."""
    text = _FENCED.sub("", page.read_text())
    title, _, rest = text.removeprefix("# ").partition("\n\n")
    return title, " ".join(rest.split("\n\n")[0].split()), re.findall(r"^## (.*)$", text, re.MULTILINE)


def _item(text: str) -> str:
    """Return an item of a list, in lines of the width of all pages."""
    return (
        textwrap.fill(f"* {text}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"
    )


def guides() -> str:
    """Return the guides, each with its sections."""
    items = []
    for page in _pages("guide"):
        title, _, sections = _parts(page)
        items.append(_item(f"[{title}]({page.name})" + (f": {'; '.join(sections)}" if sections else "")))
    return "".join(items)


def recipes() -> str:
    """Return the recipes, each with its problem."""
    items = []
    for page in _pages("cookbook"):
        title, problem, _ = _parts(page)
        items.append(_item(f"[{title}]({page.name}): {problem}"))
    return "".join(items)


def designs() -> str:
    """Return the design pages."""
    return "".join(_item(f"[{_parts(page)[0]}]({page.name})") for page in _pages("design"))


_INDEXES: Mapping[str, Callable[[], str]] = {each.__name__: each for each in (guides, recipes, designs)}


def filled(page: str) -> str:
    """Return the page with the present index in its place."""
    return _PLACE.sub(lambda place: place[1] + _INDEXES[place[2]]() + place[3], page)


def main() -> None:
    for name in PAGES:
        path = ROOT / name
        path.write_text(filled(path.read_text()))


if __name__ == "__main__":
    main()
