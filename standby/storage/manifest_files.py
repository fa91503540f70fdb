"""The manifests of complete checkpoints, as every process of a job may read them.

This module imports little, because `causal run` keeps it loaded.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from causal.commands import Files
from causal.errors import CorruptData
from causal.sealed import digest_of
from standby.supervision.file_lists import as_files

DIRECTORY = "checkpoints"

MANIFEST = re.compile(r"manifest-(\d+)\.json")


def newest_manifest(job: Path) -> tuple[int, dict[str, Files]] | None:
    """Return the manifest of the latest complete checkpoint; None if there is none.

    Raises:
        CorruptData: the manifest is damaged.
    """
    epochs = epochs_in(job)
    return (max(epochs), manifest_of(job, max(epochs))) if epochs else None


def epochs_in(job: Path) -> list[int]:
    """Return the epochs that have a manifest, in any order."""
    return [int(match[1]) for match in map(MANIFEST.fullmatch, names_in(job / DIRECTORY)) if match]


def manifest_of(job: Path, epoch: int) -> dict[str, Files]:
    """Return the files of each task in the complete checkpoint of an epoch.

    Raises:
        CorruptData: the manifest is damaged or missing.
    """
    path = job / DIRECTORY / f"manifest-{epoch}.json"
    try:
        manifest = json.loads(path.read_text())
        digest = manifest.pop("digest")
        if digest != digest_of(manifest) or manifest["epoch"] != epoch:
            raise ValueError("its digest does not match")
        return as_files(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise CorruptData(f"{path} is damaged ({problem}); start the job again without --resume") from None


def epoch_of(manifest: Path) -> int:
    """Return the epoch in the file name of a manifest; -1 for any other file."""
    match = MANIFEST.fullmatch(manifest.name)
    return int(match[1]) if match else -1


def manifests_from(job: Path, epoch: int) -> list[Path]:
    """Return the manifests of this checkpoint and of later ones."""
    folder = job / DIRECTORY
    return [folder / name for name in sorted(names_in(folder)) if epoch_of(Path(name)) >= epoch]


def names_in(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []
