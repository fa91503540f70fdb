"""The runner of all tests: tests that fail next to others are run once more alone, and only a pass there is a pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import __main__ as runner
from tests.members import sample

ONCE = """
import pathlib
def test_once():
    mark = pathlib.Path(__file__).with_suffix(".ran")
    ran = mark.exists()
    mark.touch()
    assert ran
"""
ALWAYS = "def test_always():\n    assert False\n"
MANY = f"import pytest\n@pytest.mark.parametrize('n', range({runner.AGAIN_MAX + 1}))\ndef test_it(n):\n    assert 0\n"
PASSES = "def test_passes():\n    pass\n"
MARKED = "import pytest\n@pytest.mark.campaign\ndef test_marked():\n    pass\ndef test_other():\n    assert False\n"


def checkout(home: Path, monkeypatch: pytest.MonkeyPatch, rest: str, jobs: str) -> None:
    """Make the runner take its tests from a directory with one file in each group."""
    for name, text in (("rest", rest), ("jobs", jobs)):
        (home / "tests" / name).mkdir(parents=True)
        (home / "tests" / name / "__init__.py").touch()
        (home / "tests" / name / "test_it.py").write_text(text)
    (home / "tests" / "__init__.py").touch()
    (home / "pytest.ini").write_text("[pytest]\nmarkers = campaign\n")
    one_at_a_time = {
        "HOME": home,
        "JOBS": ("tests/jobs",),
        "ELSEWHERE": (),
        "PACKAGES": (),
        "BESIDE": {"jobs": (), "rest": ()},
    }
    for name, value in one_at_a_time.items():
        monkeypatch.setattr(runner, name, value)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take most of the start of each pytest
    monkeypatch.setenv("PYTEST_PLUGINS", "_hypothesis_pytestplugin")


@pytest.mark.parametrize(
    ("rest", "jobs", "status", "said"),
    [
        (ONCE, ONCE, 0, "failed next to other tests and passed alone: tests/rest/test_it.py::test_once, tests/jobs/"),
        (ALWAYS, ONCE, 1, "once more, alone: tests/rest/test_it.py::test_always, tests/jobs/test_it.py::test_once"),
        (MANY, PASSES, 1, f"{runner.AGAIN_MAX + 1} failed"),
    ],
    ids=["one of each", "one fails again", "too many"],
)
def test_a_failure_is_forgiven_only_by_a_pass_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    rest: str, jobs: str, status: int, said: str,
) -> None:  # fmt: skip
    checkout(tmp_path, monkeypatch, rest, jobs)
    assert runner.main([]) == status
    shown = capfd.readouterr().out
    assert said in shown
    assert ("passed alone" in shown) is (status == 0 and ONCE in (rest, jobs))
    assert ("once more" in shown) is (ONCE in (rest, jobs))


def test_a_campaign_runs_what_is_marked_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    checkout(tmp_path, monkeypatch, MARKED, PASSES)
    profile = "from hypothesis import settings\nsettings.register_profile('campaign')\n"
    (tmp_path / "tests" / "conftest.py").write_text(profile)
    assert runner.main(["--campaign"]) == 0
    shown = capfd.readouterr().out
    assert "1 passed, 1 deselected" in shown and "both groups together" in shown and "once more" not in shown


def test_a_sample_is_spread_evenly_and_the_other_cases_are_marked() -> None:
    a, b, c, d = sample([(1, 2), (3, 4), (5, 6), (7, 8)], 2)
    assert (a, c) == ((1, 2), (5, 6))
    assert (b, d) == tuple(pytest.param(*case, marks=pytest.mark.campaign) for case in ((3, 4), (7, 8)))
    assert sample("ab", 5) == ["a", "b"]
