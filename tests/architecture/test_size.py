"""Prose is counted apart from what programs write into pages."""

from __future__ import annotations

from pathlib import Path

from tests.architecture import size
from tests.architecture.source import ROOT


def test_only_what_stands_between_marks_is_generated(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Two words.\n\n<!-- a: made by python -m x -->\n\none two three\n\n<!-- end of a -->\n\nMore.\n")
    assert size.generated_words(page) == 3
    page.write_text("<!-- settings -->\nwritten by hand\n<!-- end -->\n")
    assert size.generated_words(page) == 0


def test_pages_with_generated_parts_are_known() -> None:
    generated = {page.relative_to(ROOT).as_posix() for page in size.tracked("*.md") if size.generated_words(page)}
    assert {"docs/figures.md", "docs/comparison.md", "docs/recovery.md", "README.md"} < generated
    assert all(size.generated_words(page) == len(page.read_text().split()) for page in size.GENERATED_PAGES)
