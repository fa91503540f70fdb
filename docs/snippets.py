"""Copies the programs of `examples/guide` and `examples/tutorial` into the pages that show them.

python docs/snippets.py          # rewrite the pages; a test fails while they are not up to date
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = (DOCS / "operators.md", DOCS / "tutorial.md", *sorted((DOCS / "guide").glob("*.md")))
PROGRAMS = tuple(path for path in sorted((ROOT / "examples" / "guide").glob("*.py")) if path.stem != "__init__")
PLACE = re.compile(r"(<!-- (examples/\w+/\w+\.py): made by docs/snippets.py -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """Return the page with the present programs in their places."""
    return PLACE.sub(lambda place: f"{place[1]}```python\n{(ROOT / place[2]).read_text()}```\n{place[3]}", page)


def main() -> None:
    for page in PAGES:
        page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    main()
