"""The size of the repository: lines of Python by package, and words of Markdown.

`python -m tests.architecture.size` prints a table.  The counts are a thermometer, not a goal: a line says one thing.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from statistics import median

from tests.architecture.source import PACKAGES, ROOT

OTHERS = ("benchmarks", "examples", "tests")


def tracked(*patterns: str) -> list[Path]:
    """Returns the files of the repository that match."""
    listing = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def row(name: str, files: list[Path]) -> str:
    """Returns a line of the table: files, lines, lines of the median and the largest file, files below 60 lines."""
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
    words = sum(len(file.read_text().split()) for file in tracked("*.md"))
    print(f"{'Markdown':<16} {len(tracked('*.md')):>5} {words:>8,} words")


if __name__ == "__main__":
    main()
