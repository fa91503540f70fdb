"""Every program that the guides show runs, each in a process and a directory of its own."""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path

import pytest

from docs import snippets
from tests.faults.forked import forked_call
from tests.members import except_for

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted((ROOT / "docs" / "guide").glob("*.md"))
PAGES = [*GUIDES, ROOT / "docs" / "operators.md"]
WITHIN_S = 240
SLOW = ("savepoint_upgrade", "whole_file_sink", "honoured_keys", "read_positions")
"""The programs that run in campaigns only."""
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def run(path: Path) -> int:
    """Do what `python PATH` does."""
    sys.path[0:0] = [str(path.parent)]
    sys.argv[:] = [str(path)]
    runpy.run_path(str(path), run_name="__main__")
    return 0


def run_tests(path: Path) -> int:
    """Do what `pytest PATH` does."""
    return int(pytest.main(["-q", "-p", "no:cacheprovider", str(path)]))


@pytest.mark.parametrize(
    "program",
    except_for(snippets.PROGRAMS, *(program for program in snippets.PROGRAMS if program.stem in SLOW)),
    ids=lambda program: program.stem,
)
def test_a_program_runs(program: Path, tmp_path: Path) -> None:
    source = program.read_text()
    path = tmp_path / f"test_{program.name}"
    path.write_text(source)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    act = run_tests if "\ndef test_" in source else run
    done = forked_call(lambda: act(path), tmp_path, (str(path),), environment, WITHIN_S)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    checked = any(part in source for part in ("assert ", "deploy", "conformance.CHECKS"))
    assert checked or snippets.shows_output(source), "a program shows its output, or is a test"
    if snippets.shows_output(source):
        name = f"examples/guide/{program.name}"
        [shown] = [output for page in snippets.PAGES if (output := snippets.output_in(page.read_text(), name))]
        assert done.stdout == shown, "run python docs/snippets.py"


def test_the_guides_show_every_program_as_it_is() -> None:
    shown = []
    for page in snippets.PAGES:
        assert snippets.filled(page.read_text()) == page.read_text(), "run python docs/snippets.py"
        shown += [place[2] for place in snippets.PLACE.finditer(page.read_text())]
    programs = [path for path in shown if path.startswith("examples/guide/")]
    assert sorted(programs) == [f"examples/guide/{program.name}" for program in snippets.PROGRAMS]


def test_every_guide_with_code_runs_some_and_is_listed() -> None:
    listed = (ROOT / "docs" / "guide" / "README.md").read_text()
    for page in GUIDES:
        if page.stem != "README":
            assert f"({page.name})" in listed, f"docs/guide/README.md does not list {page.name}"
            text = page.read_text()
            assert "```python" not in text or snippets.PLACE.search(text), f"{page.name} shows Python, and nothing runs"


def test_every_page_that_a_guide_links_exists() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", _FENCED.sub("", page.read_text())):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links {target}"
