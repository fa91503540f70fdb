"""A pipeline file that cannot run is one line with file and line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from multiprocessing import spawn
from pathlib import Path

import pytest

from causal.config import JobConfig
from causal.errors import OperatorFailed, PipelineError
from operators.builder.loading import load
from operators.builder.spawning import JOB
from operators.testing import run

GOOD = """
from operators import Pipeline
from operators.sources import GeneratedSource
from operators.sinks import JsonLinesSink
pipeline = Pipeline("good")
count = int(pipeline.settings.get("n", 10))
pipeline.source("in", GeneratedSource(lambda p, i: i, count=count)).sink("out", JsonLinesSink("rows"))
"""


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield


def written(directory: Path, text: str | bytes) -> Path:
    file = directory / "job.py"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_settings_and_modules_beside_the_file_are_there_and_the_main_part_does_not_run(tmp_path: Path) -> None:
    (tmp_path / "beside_the_job.py").write_text("NAME = 'good'")
    text = "from beside_the_job import NAME\n" + GOOD.replace('"good"', "NAME")
    file = written(tmp_path, text + "if __name__ == '__main__':\n    raise SystemExit(3)\n")
    pipeline = load(file, {"n": "25"})
    assert pipeline.name == "good" and pipeline.settings == {"n": "25"}
    assert pipeline.sources["in"].count == 25  # type: ignore[attr-defined]
    assert load(file).sources["in"].count == 10  # type: ignore[attr-defined]


def test_children_that_would_load_the_file_again_are_refused(tmp_path: Path) -> None:
    text = 'import multiprocessing\nmultiprocessing.get_context("forkserver").Process(target=print).start()\n'
    with pytest.raises(PipelineError, match=r"job\.py:2: RuntimeError: .+ would start a new interpreter, which"):
        load(written(tmp_path, text + GOOD))
    assert spawn.get_preparation_data("child")["name"] == "child"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\nif x\n", r"job.py:2: SyntaxError: expected ':'"),
        ("  x = 1\n", r"job.py:1: IndentationError"),
        (b"x = '\xff'\n", r"job.py.*SyntaxError"),
        (b"x = 1\0\n", r"job.py.*(SyntaxError|ValueError)"),
        ("def f():\n    return 1 / 0\n\nf()\n", r"job.py:2: ZeroDivisionError: division by zero"),
        ("import no_such_module_anywhere\n", r"job.py:1: ModuleNotFoundError: .*no_such_module_anywhere"),
        ("import json\njson.loads('{')\n", r"job.py:2: JSONDecodeError"),
        ("raise ValueError('two\\nlines')\n", r"job.py:1: ValueError: two lines$"),
        ("raise SystemExit(1)\n", r"job.py:1: SystemExit"),
        ("raise GeneratorExit\n", r"job.py:1: GeneratorExit"),
        ("x = 1\n", r"defines no `pipeline`; write pipeline = Pipeline"),
        ("from operators import Pipeline\njob = Pipeline('x')\n", r"rename 'job' to `pipeline`"),
        ("pipeline = 3\n", r"`pipeline` is of type int; it must be a Pipeline"),
        (GOOD.replace('.sink("out", JsonLinesSink("rows"))', ""), r"job.py:7: nothing reads from operator 'in'"),
        (GOOD.replace("pipeline.source", "pipeline = pipeline.source").split(".sink(")[0], r"a stream without a sink"),
        (GOOD.replace("count=count", "count='x'"), r"job.py:7: GeneratedSource has count 'x'"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(PipelineError, match=message) as caught:
        load(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="none.py: the file does not exist"):
        load(tmp_path / "none.py")
    with pytest.raises(PipelineError, match="cannot be read"):
        load(tmp_path)


def test_a_module_beside_the_pipeline_that_raises_is_named_with_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "lookups.py").write_text("def table():\n    return {}['missing']\n")
    (tmp_path / "job.py").write_text("import lookups\n\nTABLE = lookups.table()\n")
    with pytest.raises(PipelineError, match=r"lookups\.py:2: KeyError: 'missing'"):
        load(tmp_path / "job.py")


@pytest.mark.parametrize("packages", ["shop", "shop/jobs"])
def test_a_file_inside_of_a_package_says_how_to_run_it(tmp_path: Path, packages: str) -> None:
    file = tmp_path / packages / "daily.py"
    file.parent.mkdir(parents=True)
    for package in ("shop", packages):
        (tmp_path / package / "__init__.py").touch()
    file.write_text("from . import parse\n")
    name = packages.replace("/", ".")
    line = f"next to the directory shop instead, with the line `from {name}.daily import pipeline`"
    with pytest.raises(PipelineError, match=rf"^{file}:1: ImportError: attempted relative [^\n]*; run a file {line}$"):
        load(file)


SHARING = """
import parts.one
from operators import Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from stated import N

pipeline = Pipeline("sharing")


def late(record):
    import deferred
    import spaces.two

    return [N, parts.one.N, deferred.N, spaces.two.N]


numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: i, count=2))
numbers.map("late", late).sink("out", JsonLinesSink("out"))
"""


def of_directory(directory: Path, n: int) -> Path:
    for name in ("parts/__init__.py", "parts/one.py", "spaces/two.py", "stated.py", "deferred.py"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("" if name.endswith("__init__.py") else f"N = {n}")
    (directory / "sharing.py").write_text(SHARING)
    return directory / "sharing.py"


@pytest.fixture
def modules() -> Iterator[None]:
    before, finders = set(sys.modules), list(sys.meta_path)
    yield
    sys.meta_path[:] = finders
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.usefixtures("modules")
def test_pipelines_of_two_directories_have_modules_of_one_name(tmp_path: Path) -> None:
    paths = [of_directory(tmp_path / str(n), n) for n in range(3)]
    for n, path in enumerate(paths):
        assert run(path)["out"] == [[n] * 4] * 2
    loaded = [load(path) for path in paths]
    for n in (2, 0, 1, 1, 0):
        assert run(loaded[n])["out"] == [[n] * 4] * 2


@pytest.mark.usefixtures("modules")
def test_a_module_of_the_test_is_the_same_before_and_after_a_pipeline_that_has_one_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_directory(tmp_path / "test", 7)
    monkeypatch.syspath_prepend(tmp_path / "test")
    stated, one = import_module("stated"), import_module("parts.one")
    assert run(of_directory(tmp_path / "1", 1))["out"] == [[1] * 4] * 2
    assert sys.modules["stated"] is stated and sys.modules["parts.one"] is one


@pytest.mark.usefixtures("modules")
def test_a_module_that_a_test_and_a_pipeline_import_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = of_directory(tmp_path, 1)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(import_module("stated"), "N", 5)
    monkeypatch.setattr(import_module("deferred"), "N", 6)
    assert run(path)["out"] == [[5, 1, 6, 1]] * 2


@pytest.mark.usefixtures("modules")
def test_no_pipeline_imports_what_is_beside_another_alone(tmp_path: Path) -> None:
    load(of_directory(tmp_path / "1", 1))
    second = of_directory(tmp_path / "2", 2)
    (tmp_path / "2/deferred.py").unlink()
    with pytest.raises(OperatorFailed, match="No module named 'deferred'"):
        run(second)


def test_a_spawned_child_that_cannot_load_its_code_ends_with_one_line(tmp_path: Path) -> None:
    JobConfig(run="r", name="n", pipeline="p.py", code="ab" * 16).save(tmp_path)
    for broken in (tmp_path, tmp_path / "nowhere"):
        child = subprocess.run(
            [sys.executable, "-c", "from operators.builder.spawned import load_lent; load_lent()"],
            env={**os.environ, JOB: str(broken)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert child.returncode == 1
        assert len(child.stderr.splitlines()) == 1 and "cannot load the code of its job: " in child.stderr
