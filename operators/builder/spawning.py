"""Import of the archived code in children that `multiprocessing` starts as new interpreters ("spawn", "forkserver").

Such children unpickle functions of the pipeline by name, but Python would not find the modules that define them. The
first message that `multiprocessing` sends to a child names the module to run as the child's main module. This module
replaces that name with `operators.builder.spawned`, which loads the archive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import spawn
from pathlib import Path
from typing import Any

from operators.code_archive.archive import Archive

JOB = "CAUSAL_SPAWNED_OF"
"""The environment variable that contains the path of the job directory."""

CHILD = "operators.builder.spawned"
MAIN = "init_main_from_name"
MAIN_PATH = "init_main_from_path"

_original = spawn.get_preparation_data


def lend_code(directory: Path, digest: str) -> None:
    """Make every child that this process spawns from now on load the code of the job in `directory`.

    If the archive cannot be read, spawning a child raises `CorruptData` in this process. Otherwise the child would fail
    to start, and some pools wait for their children and restart such a child endlessly.
    """

    def get_preparation_data(name: str) -> dict[str, Any]:
        Archive.load(directory, digest)
        data = _original(name)
        os.environ[JOB] = str(directory)
        data.pop(MAIN_PATH, None)
        return {**data, MAIN: CHILD}

    spawn.get_preparation_data = get_preparation_data


@contextmanager
def refusing_children() -> Iterator[None]:
    """Refuse to spawn children while a pipeline file is being loaded, because they would load the file as well."""
    before = spawn.get_preparation_data
    spawn.get_preparation_data = _refused
    try:
        yield
    finally:
        spawn.get_preparation_data = before


def _refused(name: str) -> dict[str, Any]:
    raise RuntimeError(
        f"{name} would start a new interpreter, which loads this file again; start it in `open` of an operator, or "
        'use get_context("fork") or threads'
    )
