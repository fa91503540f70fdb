"""The runner of all tests: what fails beside others is run once more alone, and only a pass there is a pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import __main__ as runner

ONCE = """
import pathlib
def test_once():
    mark = pathlib.Path(__file__).with_suffix(".ran")
    ran = mark.exists()
    mark.touch()
    assert ran
"""
ALWAYS = "def test_always():\n    assert False\n"
MANY = "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_many(n):\n    assert False\n"
PASSES = "def test_passes():\n    pass\n"


@pytest.mark.parametrize(
    ("rest", "jobs", "status", "said"),
    [
        (PASSES, PASSES, 0, "both groups together"),
        (ONCE, PASSES, 0, "failed beside other tests and passed alone: tests/rest/test_it.py::test_once"),
        (PASSES, ONCE, 0, "failed beside other tests and passed alone: tests/jobs/test_it.py::test_once"),
        (ALWAYS, ONCE, 1, "once more, alone: tests/rest/test_it.py::test_always, tests/jobs/test_it.py::test_once"),
        (MANY, PASSES, 1, "4 failed"),
    ],
    ids=["all pass", "one of the rest", "one of the jobs", "one fails again", "too many"],
)
def test_a_failure_is_forgiven_only_by_a_pass_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    rest: str, jobs: str, status: int, said: str,
) -> None:  # fmt: skip
    for name, text in (("rest", rest), ("jobs", jobs)):
        (tmp_path / "tests" / name).mkdir(parents=True)
        (tmp_path / "tests" / name / "__init__.py").touch()
        (tmp_path / "tests" / name / "test_it.py").write_text(text)
    (tmp_path / "tests" / "__init__.py").touch()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    one_at_a_time = {"HOME": tmp_path, "JOBS": ("tests/jobs",), "ELSEWHERE": (), "PACKAGES": (), "BESIDE": ()}
    for name, value in one_at_a_time.items():
        monkeypatch.setattr(runner, name, value)
    assert runner.main([]) == status
    shown = capfd.readouterr().out
    assert said in shown
    assert ("passed alone" in shown) is (status == 0 and ONCE in (rest, jobs))
    assert ("once more" in shown) is (ONCE in (rest, jobs))
