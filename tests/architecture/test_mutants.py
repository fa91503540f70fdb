"""The tool that changes lines of the product makes the changes that it promises, and knows which ones tests notice."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants import changes, drawn, judge

PRODUCT = """\
def inside(x: int) -> bool:
    return x < LIMIT


def outside(x: int) -> bool:
    return x > LIMIT


def unused() -> None:
    print(LIMIT)


LIMIT = int("3")
"""
TESTS = """\
from part.bound import inside, outside


def test_exactly():
    assert inside(2) and not inside(3)


def test_loosely():
    assert outside(4)
"""


@pytest.mark.parametrize(
    "line, expected",
    [
        ("a = x < 4", ["x < 4 -> (x <= 4)", "4 -> (5)"]),
        ("a = x and y", ["x and y -> (x or y)"]),
        ("a = not x", ["not x -> (x)"]),
        ("a = x + y", ["x + y -> (x - y)"]),
        ("a.b = True", ["a.b = True -> pass", "True -> (False)"]),
        ("a.add(b)", ["a.add(b) -> pass"]),
        ("a += b", ["a += b -> pass"]),
        ("a = b if c else d", ["b if c else d -> (d if c else b)"]),
        ("a: list[int] = b", []),
        ("raise ValueError(1)", []),
        ("invariant(a == b, 'they differ')", []),
    ],
)
def test_changes_of_a_line(line: str, expected: list[str]) -> None:
    assert [change for _, change, _ in changes(line)] == expected


def test_each_change_of_this_file_is_a_program_that_differs_in_one_place() -> None:
    source = Path(__file__).read_text()
    unchanged = ast.dump(ast.parse(source))
    texts = [text for _, _, text in changes(source)]
    assert texts and all(ast.dump(ast.parse(text)) != unchanged for text in texts)


def test_what_tests_notice_what_they_miss_and_what_they_do_not_perform(tmp_path: Path) -> None:
    for name, text in {"part/bound.py": PRODUCT, "tests/__init__.py": "", "tests/test_bound.py": TESTS}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    results = judge(tmp_path, ["part"], ["tests"], seed=1, count=9, jobs=1)
    assert {result: [(mutant.before, mutant.change) for mutant in mutants] for result, mutants in results.items()} == {
        "noticed": [("return x < LIMIT", "x < LIMIT -> (x <= LIMIT)")],
        "missed": [("return x > LIMIT", "x > LIMIT -> (x >= LIMIT)")],
        "not performed": [("print(LIMIT)", "print(LIMIT) -> pass")],
    }


def test_the_same_lines_are_drawn_after_other_lines_changed(tmp_path: Path) -> None:
    (tmp_path / "bound.py").write_text(PRODUCT)
    before = {mutant.before: mutant.change for mutant in drawn(tmp_path, ["bound.py"], seed=1, count=9)}
    (tmp_path / "bound.py").write_text("ADDED = 7\n\n" + PRODUCT)
    after = {mutant.before: mutant.change for mutant in drawn(tmp_path, ["bound.py"], seed=1, count=9)}
    assert before.items() < after.items()
