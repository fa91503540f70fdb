"""The parts of `causal replay` for a bundle file: its point is the default, and notes name what may differ."""

from __future__ import annotations

import argparse

from deploy.exit_status import DONE, say
from operators.code_archive.archive import other_versions
from operators.code_archive.reach import versions_now
from operators.recordings.bundle import Bundle

_PLACES = ("task", "epoch", "at", "row", "key", "condition")


def begin_at_point(bundle: Bundle, arguments: argparse.Namespace) -> None:
    """Name the point for which the bundle was made, unless the arguments name another one; print what may differ."""
    if all(getattr(arguments, name, None) is None for name in _PLACES) and not arguments.at_crash:
        for name, value in bundle.point.items():
            setattr(arguments, name, value)
        arguments.task = bundle.task
    if bundle.redacted:
        say(f"note: the {', '.join(bundle.redacted)} is redacted, so nothing is compared with the recording", DONE)
    archive = bundle.archive(bundle.version_at(bundle.first))
    for difference in other_versions(archive, versions_now(archive)):
        say(f"note: {difference}; what the code does may differ for this reason", DONE)
