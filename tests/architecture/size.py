"""The size of the repository: lines of Python by package, and words of Markdown.

`python -m tests.architecture.size` prints a table.  The counts are a thermometer, not a goal: a line says one thing.
Text that a program writes into a page is counted apart from prose.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from statistics import median

from tests.architecture.source import PACKAGES, ROOT

OTHERS = ("benchmarks", "examples", "tests")
GENERATED_PAGES = (ROOT / "docs" / "reference" / "commands.md",)
"""Pages that a program writes as a whole."""
_GENERATED_PART = re.compile(r"<!-- [^\n]*: (?:made|drawn) by [^\n]* -->\n(.*?)<!-- end[^\n]*-->", re.DOTALL)
"""The text between the marks of a program inside of a page."""


def tracked(*patterns: str) -> list[Path]:
    """Return the files of the repository that match."""
    listing = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def generated_words(page: Path) -> int:
    """Return how many words of a page a program has written."""
    text = page.read_text()
    parts = [text] if page in GENERATED_PAGES else _GENERATED_PART.findall(text)
    return sum(len(part.split()) for part in parts)


def row(name: str, files: list[Path]) -> str:
    """Return a line of the table: files, lines, lines of the median and the largest file, files below 60 lines."""
    counts = [lines_of(file) for file in files if file.name != "__init__.py"]
    small = sum(count < 60 for count in counts)
    return f"{name:<16} {len(counts):>5} {sum(counts):>8,} {median(counts):>8.0f} {max(counts):>8} {small:>9}"


def main() -> None:
    """Print the table."""
    print(f"{'':<16} {'files':>5} {'lines':>8} {'median':>8} {'largest':>8} {'below 60':>9}")
    product = [file for package in PACKAGES for file in tracked(f"{package}/*.py")]
    for package in PACKAGES:
        print(row(package, tracked(f"{package}/*.py")))
    print(row("product", product))
    for package in OTHERS:
        print(row(package, tracked(f"{package}/*.py")))
    pages = tracked("*.md")
    generated = {page: generated_words(page) for page in pages}
    words = sum(len(page.read_text().split()) for page in pages) - sum(generated.values())
    print(f"{'Markdown':<20} {len(pages):>5} {words:>8,} words")
    print(f"{'Markdown, generated':<20} {sum(map(bool, generated.values())):>5} {sum(generated.values()):>8,} words")


if __name__ == "__main__":
    main()
