"""The house: file names are unique, folders say what they are for, and what claims to be pure is."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from tests.architecture.source import PACKAGES, PURE, SHELL, modules, within

CLAIM = re.compile(r"(^|[.:] +)[Pp]ure\b")
"""The claim, as in \"Pure.\" and \"…: pure.\", not \"a pure function\"."""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_two_modules_of_a_package_have_the_same_file_name(package: str) -> None:
    names = Counter(
        module.path.name
        for module in modules()
        if module.name.split(".")[0] == package and not module.path.name.startswith("__")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_every_folder_says_what_it_is_for() -> None:
    silent = [
        module.place
        for module in modules()
        if module.path.name == "__init__.py" and "." in module.name and ast.get_docstring(module.tree) is None
    ]
    assert silent == []


def test_what_is_listed_as_pure_exists() -> None:
    names = {module.name for module in modules()}
    assert [place for place in PURE + SHELL if place not in names] == []


def test_what_claims_to_be_pure_is_checked() -> None:
    unchecked = [
        module.place
        for module in modules()
        if CLAIM.search(ast.get_docstring(module.tree) or "") and not module.pure and not within(module.name, SHELL)
    ]
    assert unchecked == []
