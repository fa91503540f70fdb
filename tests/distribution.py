"""`python -m tests.distribution DIST`: each built distribution runs the README's pipeline in an empty environment.

For each file of the directory DIST (an sdist, a wheel) a virtual environment is made, the file is installed in it, and
`causal run` counts in an empty directory while one of its tasks is killed.  Exit status 0: every row was there once.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_PIPELINE = re.compile(r"<!-- first pipeline -->\n```python\n(.*?)```", re.DOTALL)
RECORDS, KEYS = 20_000, 100
VISIBLE = """
import pathlib, pkgutil
places = {each.name: pathlib.Path(each.module_finder.path, each.name) for each in pkgutil.iter_modules() if each.ispkg}
typed = [name for name in ("causal", "operators", "standby", "deploy", "pyspark_causal") if name in places]
raise SystemExit(len(typed) < 5 or not all((places[name] / "py.typed").exists() for name in typed))
"""
"""Type checkers, editors and Spark's search for data sources follow paths: each package is there, with its types."""


def check(distribution: Path) -> str:
    """Return a line that says what was wrong with a distribution; "" for nothing."""
    pipeline = _PIPELINE.search((ROOT / "README.md").read_text())
    if pipeline is None:
        return "README.md has no first pipeline"
    with tempfile.TemporaryDirectory() as place:
        home, work = Path(place) / "environment", Path(place) / "work"
        work.mkdir()
        venv.create(home, with_pip=True)
        environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
        install: list[str | Path] = [home / "bin" / "python", "-m", "pip", "install", "--quiet", distribution.resolve()]
        run: list[str | Path] = [home / "bin" / "causal", "run", "counts.py", "--kill", "count/0@1.5"]
        (work / "counts.py").write_text(pipeline[1])
        visible: list[str | Path] = [home / "bin" / "python", "-c", VISIBLE]
        for argv in (install, visible, run):
            done = subprocess.run(argv, cwd=work, env=environment, capture_output=True, text=True, timeout=600)
            if done.returncode:
                command = f"{Path(argv[0]).name} {argv[1]}"
                return f"{command} ended with status {done.returncode}: {done.stderr.strip()[-500:]}"
        with sqlite3.connect(work / "out.db") as database:
            rows = [json.loads(record) for (record,) in database.execute("SELECT record FROM output")]
    numbers = sorted((row["key"], row["n"]) for row in rows)
    expected = sorted((key, n) for key in range(KEYS) for n in range(1, RECORDS // KEYS + 1))
    return "" if numbers == expected else f"{len(rows)} rows are not the {RECORDS} expected ones"


def main(argv: list[str]) -> int:
    """Check every distribution in a directory."""
    distributions = sorted([*Path(argv[0]).glob("*.whl"), *Path(argv[0]).glob("*.tar.gz")])
    if len(distributions) != 2:
        print(f"{argv[0]} has {len(distributions)} distributions, not a wheel and an sdist", file=sys.stderr)
        return 1
    problems = {distribution.name: check(distribution) for distribution in distributions}
    for name, problem in problems.items():
        print(f"{name}: {problem or 'installs into an empty environment, and counts exactly through a kill'}")
    return int(any(problems.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
