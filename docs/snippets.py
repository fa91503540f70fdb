"""Copies the programs of `examples` into the pages that show them, with the output of the programs of the guides.

python docs/snippets.py          # run the programs and rewrite the pages; a test fails while they are not up to date
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = (
    DOCS / "operators.md",
    DOCS / "tutorial.md",
    DOCS / "last_night.md",
    *sorted((DOCS / "guide").glob("*.md")),
    *sorted((DOCS / "cookbook").glob("*.md")),
)
PROGRAMS = tuple(path for path in sorted((ROOT / "examples" / "guide").glob("*.py")) if path.stem != "__init__")
"""The programs that end in seconds, so that their output is shown."""
PLACE = re.compile(r"(<!-- (examples/\w+/\w+\.py): made by docs/snippets.py -->\n)(.*?)(<!-- end -->)", re.DOTALL)
PRINTS = "\nIt prints:\n\n```text\n"
_PRINT = re.compile(r"^(?:    )*print\(", re.MULTILINE)


def shows_output(source: str) -> bool:
    """Return whether a page shows what the program prints."""
    return _PRINT.search(source) is not None


def output_in(page: str, program: str) -> str:
    """Return what the program prints according to the page, or an empty string."""
    shown = next((place[3] for place in PLACE.finditer(page) if place[2] == program), "")
    return shown.partition(PRINTS)[2].removesuffix("```\n")


def output_of(program: str) -> str:
    """Run a program in an empty directory, and return what it prints."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        argv = [sys.executable, str(ROOT / program)]
        return subprocess.check_output(argv, cwd=directory, env=environment, text=True)


def filled(page: str, run: bool = False) -> str:
    """Return the page with the present programs in their places, and with their present output if they run."""

    def block(place: re.Match[str]) -> str:
        program = place[2]
        source = (ROOT / program).read_text()
        shown = f"{place[1]}```python\n{source}```\n"
        if ROOT / program in PROGRAMS and shows_output(source):
            shown += f"{PRINTS}{output_of(program) if run else output_in(page, program)}```\n"
        return shown + place[4]

    return PLACE.sub(block, page)


def main() -> None:
    for page in PAGES:
        page.write_text(filled(page.read_text(), run=True))


if __name__ == "__main__":
    main()
