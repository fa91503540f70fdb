"""Changes pages while the site is built.

Raw tables of measurements are written into the pages that ask for them (`benchmarks/report/appendix.py`), and the
theme's one download becomes a file of ours (`assets/worker.js`).  The search lists guides before the pages that mention
the same words for developers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.report import appendix

_SEARCH_BOOSTS = {
    "guide/README.md": 0.5, "guide/change.md": 16.0, "guide/": 8.0, "cookbook/index.md": 0.5, "cookbook/": 4.0,
    "guarantees.md": 8.0, "operators.md": 4.0, "index.md": 0.5, "design/": 0.02, "benchmarks.md": 0.1,
    "figures.md": 0.1,
}  # fmt: skip
"""Factors of the rank of a page in the search, by the first that its path begins with; 1 for all others."""
_DOWNLOAD = "https://unpkg.com/iframe-worker/shim"


@cache
def _tables() -> Mapping[str, str]:
    return appendix.contents(appendix.stored())


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Return the page with the tables that it asks for; the first page of the site is the README."""
    boosts = [boost for start, boost in _SEARCH_BOOSTS.items() if page.file.src_uri.startswith(start)]
    page.meta["search"] = {"boost": boosts[0] if boosts else 1.0}
    if page.file.src_uri == "index.md":
        readme = (Path(__file__).resolve().parents[1] / "README.md").read_text()
        return readme.replace("](docs/", "](").replace("[CONTRIBUTING.md](CONTRIBUTING.md)", "`CONTRIBUTING.md`")
    return appendix.filled(markdown, _tables())


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Return the page with nothing that has to be fetched from elsewhere."""
    return output.replace(_DOWNLOAD, "../" * page.url.count("/") + "assets/worker.js")


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """Return a page that has no source, such as the one for unknown addresses, changed in the same way."""
    return output_content.replace(_DOWNLOAD, "assets/worker.js")
