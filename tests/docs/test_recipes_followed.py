"""Recipes of CONTRIBUTING.md, followed in one copy of the repository: the tests that they name fail until it is done.

A window kind is written through all steps in `tests/unit/operators/test_recipes.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGES
from tests.faults.job import WAIT_S

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ("tests/docs/test_pages.py", "tests/unit/causal/test_config.py")
DETERMINANTS = ("tests/unit/causal/test_documented.py",)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for folder in (*PACKAGES, "docs", "examples", "tests"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("assets")
        )  # with bytecode: a fifth of the work less
    for name in ("setup.cfg", "mkdocs.yml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1, f"{path.name} has {before!r} {text.count(before)} times"
    path.write_text(text.replace(before, after))


def failing(directory: Path, files: tuple[str, ...]) -> set[str]:
    """Name the tests of these files that fail there."""
    argv = [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", *files]
    environment = {**os.environ, "PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(argv, cwd=directory, env=environment, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    return {line.split("::")[1].split(" ")[0].split("[")[0] for line in lines}


def write_tables(directory: Path) -> None:
    subprocess.run([sys.executable, "docs/tables.py"], cwd=directory, check=True, timeout=WAIT_S)


COIN = '''

@dataclass(slots=True)
class Coin:
    """A coin was thrown.

    Entry: `0b`, the side: 2 bytes.
    """

    heads: bool
    kind = "coin"


def _decode_coin(codec: DeterminantCodec, log: bytes | bytearray, place: int) -> tuple[Coin, int]:
    return Coin(bool(log[place])), place + 1


_ENCODERS[Coin] = lambda codec, coin: bytes((11, coin.heads))
_DECODERS[11] = _decode_coin
'''


@pytest.mark.campaign
def test_a_new_setting_and_a_new_determinant_kind(copied: Path) -> None:
    """Both together: nothing of one recipe is in a file of the other, or in a test of the other."""
    config, module, tables, tests = (
        copied / name
        for name in (
            "causal/config.py",
            "causal/determinants.py",
            "docs/tables.py",
            "tests/unit/causal/test_documented.py",
        )
    )
    field, limit = "    agents: int = 2\n", '    "agents": Limit('
    change(config, field, f'    naps_max: int = 3\n    """The most naps of a task."""\n{field}')
    change(module, 'KINDS = ("order", ', 'KINDS = ("coin", "order", ')
    module.write_text(module.read_text() + COIN)
    assert failing(copied, SETTINGS + DETERMINANTS) == {
        "test_every_setting_is_documented_with_its_default",
        "test_the_tables_of_a_page_are_those_of_the_code",
        "test_every_number_has_a_limit",
        "test_examples_are_what_the_codec_writes_and_reads",
        "test_kinds_and_tags_are_those_of_the_page",
    }
    change(config, limit, f'    "naps_max": Limit(0, 10),\n{limit}')
    module.write_text(module.read_text() + "Determinant |= Coin\n")
    barrier = '    ("7", determinants.Barrier(7)),'
    change(tables, barrier, f'    ("heads", determinants.Coin(True)),\n{barrier}')
    write_tables(copied)
    change(tests, '    "clock": determinants.CLOCK,', '    "coin": 11,\n    "clock": determinants.CLOCK,')
    assert failing(copied, SETTINGS + DETERMINANTS) == set()
