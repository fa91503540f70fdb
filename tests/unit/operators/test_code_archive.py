"""The archive of a pipeline: its contents, how they are loaded, and whose module a name means."""

from __future__ import annotations

import linecache
import sys
import traceback
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from causal.errors import CorruptData, PipelineError
from operators.builder.loading import MODULE, freeze, load, load_archived
from operators.code_archive import archive as archives
from operators.code_archive.archive import Archive, Module, changed, other_versions, same_code
from operators.code_archive.reach import hidden_by_python, versions_now
from tests.members import members

GOOD = """
from operators import Pipeline
from operators.sources import GeneratedSource
from operators.sinks import JsonLinesSink
pipeline = Pipeline("good")
pipeline.source("in", GeneratedSource(lambda p, i: i, count=10)).sink("out", JsonLinesSink("rows"))
"""


@pytest.fixture(autouse=True)
def own_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def written(directory: Path, text: str = GOOD, **others: str) -> Path:
    for name, source in others.items():
        file = directory / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    (directory / "job.py").write_text(text)
    return directory / "job.py"


def names(archive: Archive) -> list[str]:
    return [module.name for module in archive.modules]


def test_what_is_loaded_and_what_import_statements_name_is_archived(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("from . import inner\n")
    path = written(
        tmp_path,
        "import beside_it, importlib\nimportlib.import_module('by_' + 'name')\n" + GOOD,
        beside_it="def f():\n    import lazily_it\n    from pack.deep import x\n    from spaces.one import y\n",
        lazily_it="import importlib\ndef g():\n    importlib.import_module('called_it')\n",
        called_it="",
        by_name="",
        unused_it="",
        pack__inner="",
        pack__deep="from .deeper import x\n",
        pack__deeper="x = 1\n",
        pack__unused="",
        spaces__one="y = 1\n",
    )
    archive = freeze(path)[1]
    assert names(archive)[0] == ""
    wanted = "beside_it lazily_it called_it by_name pack pack.inner pack.deep pack.deeper spaces.one"
    assert set(names(archive)[1:]) == set(wanted.split())


def test_a_folder_without_init_in_a_package_is_archived_each_time(tmp_path: Path) -> None:
    path = written(tmp_path, "from pack.spaces.one import y\n" + GOOD, pack__spaces__one="y = 1\n")
    (tmp_path / "pack" / "__init__.py").touch()
    for _ in range(2):
        assert names(freeze(path)[1]) == ["", "pack", "pack.spaces.one"]


def test_what_is_installed_is_recorded_with_its_version(tmp_path: Path) -> None:
    archive = freeze(written(tmp_path, "import msgpack\nimport json\n" + GOOD))[1]
    assert names(archive) == [""]
    assert set(archive.outside) == {"msgpack"}
    assert not list(other_versions(archive, versions_now(archive)))
    older = replace(archive, outside={"msgpack": "0.1"}, python="3.1")
    assert [phrase.split(" was ")[0] for phrase in other_versions(older, versions_now(older))] == ["Python", "msgpack"]


def test_the_archive_is_loaded_and_no_file_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, "import beside_it\nVALUE = beside_it.VALUE\n" + GOOD, beside_it="VALUE = 1\n")
    _, archive = freeze(path)
    (tmp_path / "beside_it.py").write_text("VALUE = 2\n")
    path.write_text("if\n")
    assert load_archived(archive, {}).name == "good"
    assert sys.modules[MODULE].VALUE == 1
    assert sys.modules["beside_it"].__file__ == str(tmp_path / "beside_it.py")


def test_tracebacks_show_the_line_that_ran(tmp_path: Path) -> None:
    path = written(tmp_path, "import beside_it\n" + GOOD, beside_it="def f():\n    raise ValueError('old')\n")
    _, archive = freeze(path)
    (tmp_path / "beside_it.py").write_text("# moved\n\n\ndef f():\n    raise ValueError('new')\n")
    load_archived(archive, {})
    linecache.checkcache()
    with pytest.raises(ValueError, match="old") as caught:
        sys.modules["beside_it"].f()
    shown = "".join(traceback.format_exception(caught.value))
    assert f'File "{tmp_path / "beside_it.py"}", line 2' in shown and "raise ValueError('old')" in shown


def test_a_module_that_no_import_names_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = written(tmp_path, "def f(n):\n    return __import__(n)\n" + GOOD, dynamic_it="")
    _, archive = freeze(path)
    load_archived(archive, {})
    with pytest.raises(ModuleNotFoundError, match="dynamic_it .* is not in the archived code .*import it in job.py"):
        sys.modules[MODULE].f("dynamic_it")


def test_a_file_is_named_by_the_digest_of_what_it_holds(tmp_path: Path) -> None:
    archive = freeze(written(tmp_path))[1].with_plan({"pipeline": "good"})
    digest = archive.save(tmp_path, durable=True)
    assert archive.save(tmp_path, durable=False) == digest == archive.digest
    assert Archive.load(tmp_path, digest) == archive
    path = archives.path_of(tmp_path, digest)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(CorruptData, match="digest"):
        Archive.load(tmp_path, digest)
    path.unlink()
    with pytest.raises(CorruptData, match="missing"):
        Archive.load(tmp_path, digest)


def test_sizes_are_checked_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(archives.MANIFEST, "{}" + " " * 10_000_000)
    body = packed.read_bytes()
    path = archives.path_of(tmp_path, archives.digest_of(body))
    path.parent.mkdir()
    path.write_bytes(body)
    with pytest.raises(CorruptData, match="exceeds the size limit of an archive"):
        Archive.load(tmp_path, archives.digest_of(body))
    monkeypatch.setattr(archives, "BYTES_MAX", 100)
    with pytest.raises(PipelineError, match=r"imports 1 modules .*job.py is the largest"):
        freeze(written(tmp_path))


def test_what_counts_as_a_change() -> None:
    assert same_code(b"x = 1  # one\n", b"\n\nx=1\n")
    assert not same_code(b"x = 1\n", b"x = 2\n")
    assert not same_code(b"x = 1\n", b"if\n")

    def of(**sources: str) -> Archive:
        items = sources.items()
        return Archive(tuple(Module(name.strip("_"), f"/p/{name}.py", False, text.encode()) for name, text in items))

    before, after = of(_="p", a="1", b="2", c="3"), of(_="p", a="1", b="4", d="5")
    assert changed(before, after) == ["b.py", "c.py (no longer used)", "d.py (new)"]


LOADS: dict[str, Callable[[Path], Any]] = {
    "load": load,
    "freeze": lambda path: freeze(path)[0],
    "load_archived": lambda path: load_archived(freeze(path)[1], {}),
}
OURS = ("deploy", "standby", "tests", "examples", "docs", "benchmarks")


@pytest.mark.parametrize(("name", "how"), members(product(OURS, LOADS), *zip(OURS, [*LOADS, *LOADS], strict=True)))
def test_modules_of_the_user_may_have_names_of_ours(tmp_path: Path, name: str, how: str) -> None:
    import deploy.cli

    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("MINE = 'mine'\n")
    (tmp_path / name / "below.py").write_text("BELOW = 'below'\n")
    path = written(tmp_path, f"from {name} import MINE\nfrom {name}.below import BELOW\n" + GOOD)
    assert LOADS[how](path).name == "good"
    assert sys.modules[MODULE].BELOW == "below"
    assert sys.modules["deploy.cli"] is deploy.cli


@pytest.mark.parametrize(
    ("begins", "line"),
    [
        ("from operators import Mine\n", r"job.py:1: ImportError.*operators.py has the name .* rename the file"),
        ("import causal.mine\n", "causal.py has the name of a module of causal-streams"),
        ("from queue import MINE\n", "queue.py has the name of a module of Python's standard library"),
        ("import queue\nqueue.MINE\n", "queue.py has the name of a module of Python's standard library"),
    ],
)
def test_a_module_called_like_ours_is_not_used_and_said_so(begins: str, line: str, tmp_path: Path) -> None:
    beside = {"operators": "raise SystemExit", "causal": "raise SystemExit", "queue": "MINE = 1"}
    assert load(written(tmp_path, GOOD, **beside)).name == "good"
    with pytest.raises(PipelineError, match=line):
        load(written(tmp_path, begins + GOOD))


def test_modules_called_like_pythons_own_hide_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, "import random\nrandom.Random\n" + GOOD, random="raise SystemExit", types="")
    archive = freeze(path)[1]
    assert names(archive) == [""]
    assert hidden_by_python(archive) == ["random.py"]
