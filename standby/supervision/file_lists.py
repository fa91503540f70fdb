"""The lists of files in manifests and in the journal.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from causal.commands import Files


def as_files(lists: Mapping[str, object]) -> dict[str, Files]:
    """Convert the lists in the journal or a manifest to the files of each task."""
    return {task: tuple((path, size, digest) for path, size, digest in files) for task, files in lists.items()}  # type: ignore[attr-defined]
