"""The site: it is built without a warning, fetches nothing, and its tutorial does its statements."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.browser import MISSING, browsing, present
from benchmarks.harness.written import records_in
from docs import api, commands
from tests.faults.forked import forked, forked_call
from tests.faults.job import WAIT_S, wait_for
from tests.members import members

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
FILE = re.compile(r"<!-- examples/tutorial/(\S+): made by \S+ -->\n```python\n(.*?)```", re.DOTALL)
FETCHED = re.compile(r"""<(?:script|link|img|iframe)[^>]*\s(?:src|href)=["']?https?://[^\s"'>]+""")
"""A reference that a page loads on its own, unlike the links that a reader follows."""
RAW_TABLES = (
    ("benchmarks", "first_output_ms"),
    ("performance", "a beat, bytes"),
    ("nexmark", "q3_first_output_ms"),
)
"""A page of the site, and a cell of a raw table that is written into it from a stored result."""
FOUND_FIRST = {
    "deduplicate": "cookbook/deduplication", "retry": "guide/outside", "exactly once": "guarantees",
    "late": "cookbook/late_data", "dead letter": "operators", "idempotency": "guide/outside", "join": "guide/joins",
    "kubernetes": "guide/hosts", "metrics": "guide/metrics", "parquet": "guide/reading", "rollback": "guide/change",
    "savepoint": "guide/change", "session": "cookbook/sessions", "state": "guide/state", "upgrade": "guide/change",
    "window": "guide/windows",
}  # fmt: skip
"""The page that a reader means by what the reader types into the search of the site."""
QUERIES = list(FOUND_FIRST)


def test_the_page_of_commands_is_written_from_the_parser() -> None:
    assert commands.PAGE.read_text() == commands.page(), "run python docs/commands.py"


def test_the_page_of_the_api_is_written_from_signatures_and_docstrings() -> None:
    assert api.PLACE.search(api.PAGE.read_text())
    assert api.PAGE.read_text() == api.filled(api.PAGE.read_text()), "run python docs/api.py"


def test_no_page_includes_text_that_is_missing_in_a_repository() -> None:
    included = re.compile(r"^(--8<--|:::)", re.MULTILINE)
    assert [str(page) for page in (ROOT / "docs").rglob("*.md") if included.search(page.read_text())] == []


def build(directory: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a site with the options of `make docs`."""
    command = re.search(r"^\tNO_MKDOCS_2_WARNING=1 \$\(VENV\)/bin/mkdocs (.+)$", (ROOT / "Makefile").read_text(), re.M)
    assert command is not None
    argv = [sys.executable, "-m", "mkdocs", *command[1].split(), "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(argv, cwd=directory, env=environment, capture_output=True, text=True, timeout=WAIT_S)


def test_a_page_that_the_navigation_omits_fails_the_build(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    (tmp_path / "docs").mkdir()
    for name in ("index", "omitted"):
        (tmp_path / "docs" / f"{name}.md").write_text(f"# {name}\n")
    validation = "validation: {nav: {omitted_files: warn}}\n"
    (tmp_path / "mkdocs.yml").write_text(f"site_name: small\n{validation}nav: [index.md, omitted.md]\n")
    assert build(tmp_path, tmp_path / "site").returncode == 0
    (tmp_path / "mkdocs.yml").write_text(f"site_name: small\n{validation}nav: [index.md]\n")
    assert build(tmp_path, tmp_path / "site").returncode != 0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    site = tmp_path_factory.mktemp("site")
    built = build(ROOT, site)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return site


@pytest.mark.skipif(not present(), reason=MISSING)
@pytest.mark.parametrize("queries", members([QUERIES[::4], QUERIES], QUERIES[::4]), ids=len)
def test_the_search_finds_the_page_that_a_reader_means(site: Path, tmp_path: Path, queries: list[str]) -> None:
    with browsing(tmp_path) as browser:
        browser.get((site / "index.html").as_uri())
        first = {query: first_result(browser, query) for query in queries}
    assert first == {query: FOUND_FIRST[query] for query in queries}


def first_result(browser: Any, query: str) -> str:
    """Return the page that the search lists first, as its path in the site without the suffix."""
    field = "document.querySelector('[data-md-component=search-query]')"
    results = "[...document.querySelectorAll('a.md-search-result__link')]"
    browser.execute_script(f"{results}.forEach(each => each.remove()); {field}.focus(); {field}.select()")
    browser.switch_to.active_element.send_keys(query)
    wait_for(
        f"results for {query!r}",
        lambda: browser.execute_script(
            f"return {results}.some(each => each.search == '?h={query.replace(' ', '+')}') || null"
        ),
    )
    first = browser.execute_script(f"return {results}[0].pathname")
    return str(first).partition("/site0/")[2].removesuffix(".html")


def test_the_site_is_built_without_a_warning_and_fetches_nothing(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    fetched = {
        match[0] for page in pages for match in FETCHED.finditer(page.read_text()) if 'rel="canonical"' not in match[0]
    }
    assert fetched == set()
    assert "first pipeline" in (site / "search" / "search_index.js").read_text()
    for name, cell in RAW_TABLES:
        assert f"<td>{cell}</td>" in (site / f"{name}.html").read_text(), name


@pytest.fixture
def tutorial(tmp_path: Path) -> Path:
    files = dict(FILE.findall(TUTORIAL))
    assert set(files) == {"orders.py", "test_orders.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def shell(directory: Path, *argv: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{directory}"}
    done = subprocess.run(argv, cwd=directory, env=environment, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def looked(directory: Path, *arguments: str) -> str:
    """Return what a command that looks at a job prints."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{directory}"}
    done = forked(directory, arguments, environment, WAIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_tutorial_does_what_it_says(tutorial: Path) -> None:
    causal = [sys.executable, "-m", "deploy"]
    shown = dict(re.findall(r"^\$ causal (.+)\n((?:[^`$].*\n)*)", TUTORIAL, re.MULTILINE))
    assert looked(tutorial, "plan", "orders.py") == shown["plan orders.py"]
    assert "run orders.py --kill loyalty/0@2" in shown
    output = shell(tutorial, *causal, "run", "orders.py", "--kill", "loyalty/0@2")
    assert "records in 20,000, out 20,000" in output
    rows = list(records_in(tutorial / "orders.db"))
    assert sorted(row["order"] for row in rows) == list(range(20_000))
    assert "state orders loyalty Ada" in shown
    state = re.search(r'^  state  ({"total": \d+})$', looked(tutorial, "state", "orders", "loyalty", "Ada"), re.M)
    assert state is not None
    assert json.loads(state[1])["total"] in {row["total"] for row in rows if row["customer"] == "Ada"}


def test_the_test_of_the_tutorial_passes(tutorial: Path) -> None:
    arguments = ["-q", "-p", "no:cacheprovider", "test_orders.py"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tutorial}"}
    done = forked_call(lambda: int(pytest.main(arguments)), tutorial, tuple(arguments), environment, WAIT_S)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
