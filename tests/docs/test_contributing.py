"""Every file, folder and module that CONTRIBUTING.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PATHS = re.findall(r"`((?:causal|operators|standby|deploy|tests|docs|benchmarks)/[\w/.*]+)`", TEXT)
MODULES = re.findall(r"`((?:causal|operators|standby|deploy)(?:\.\w+)+)`", TEXT)


def _is_there(dotted: str) -> bool:
    place = ROOT / dotted.replace(".", "/")
    if place.is_dir() or place.with_suffix(".py").exists():
        return True
    *module, name = dotted.split(".")
    file = ROOT.joinpath(*module).with_suffix(".py")
    return file.exists() and re.search(rf"^(?:def|class) {name}\b", file.read_text(), re.MULTILINE) is not None


def test_what_the_recipes_name_is_there() -> None:
    named = [path for path in PATHS if "NAME" not in path]
    assert len(named) > 20 and MODULES
    assert [path for path in named if not list(ROOT.glob(path.rstrip("/")))] == []
    assert [module for module in MODULES if not _is_there(module)] == []
