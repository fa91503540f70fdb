"""Every snippet of the guides that begins with `# runs` runs, each in a process and a directory of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted((ROOT / "docs" / "guide").glob("*.md"))
PAGES = [*GUIDES, ROOT / "docs" / "operators.md"]
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^```python\n(# runs.*?)^```", re.DOTALL | re.MULTILINE)


def snippets() -> list[tuple[str, str]]:
    """(page and place, source) of each."""
    return [
        (f"{page.stem}-{number}", block[1])
        for page in PAGES
        for number, block in enumerate(_BLOCK.finditer(page.read_text()), 1)
    ]


@pytest.mark.parametrize(("name", "source"), snippets(), ids=[name for name, _ in snippets()])
def test_a_snippet_runs(name: str, source: str, tmp_path: Path) -> None:
    path = tmp_path / f"test_{name.replace('-', '_')}.py"
    path.write_text(source)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    module = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if "\ndef test_" in source else []
    argv = [sys.executable, *module, str(path)]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    checked = any(part in source for part in ("assert ", "deploy", "conformance.CHECKS"))
    assert checked, "a snippet says what comes out"


def test_every_guide_with_code_runs_some_and_is_listed() -> None:
    listed = (ROOT / "docs" / "guide" / "README.md").read_text()
    for page in GUIDES:
        if page.stem != "README":
            assert f"({page.name})" in listed, f"docs/guide/README.md does not list {page.name}"
            text = page.read_text()
            assert "```python" not in text or _BLOCK.search(text), f"{page.name} shows Python, and nothing runs"


def test_every_page_that_a_guide_links_exists() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", _FENCED.sub("", page.read_text())):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links {target}"
