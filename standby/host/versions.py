"""The files in which a host of several keeps the versions of its job, as the supervisor has sent them.

A file that cannot be written is reported; the supervisor repeats what a host has not carried out.
"""

from __future__ import annotations

from pathlib import Path

from causal.errors import Unavailable
from causal.storage.files import replace_text
from standby.blueprint import FILE as GRAPH
from standby.blueprint import Blueprint, CompanionCall
from standby.storage.change_files import NEXT

SETTINGS = "job.json"


def store_version(job: Path, settings: str, graph: str) -> None:
    """Store the version as which all processes start from now on.

    Raises:
        Unavailable: a file cannot be written.
    """
    _replace(job / GRAPH, graph)
    _replace(job / SETTINGS, settings)


def store_next(job: Path, settings: str) -> None:
    """Store the settings of the next version, which its processes read.

    Raises:
        Unavailable: the file cannot be written.
    """
    _replace(job / NEXT / SETTINGS, settings)


def _replace(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        replace_text(path, text)
    except OSError as problem:
        raise Unavailable(f"{path} cannot be written: {problem.strerror}") from None


def companions_of(blueprint: Blueprint) -> dict[str, CompanionCall]:
    """Return the companions of a version by the roles in orders to start them."""
    return {f"companion:{call.name}": call for call in blueprint.companions}
