"""Refuses a job whose sinks have lost their files, before stores are opened and empty ones are created."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from causal.config import JobConfig
from causal.errors import PipelineError
from deploy.savepoints.savepoint_store import stood
from operators.engine.plan import Plan
from standby.blueprint import Blueprint
from standby.storage.manifest_files import newest_manifest

RELATIVE = "a relative path is resolved from the current directory"
RENAME = "or rename the sink so that it starts empty"
AFRESH = "or start the job without --resume"


def check(rows: Mapping[str, int], config: JobConfig, planned: Plan, remedy: str = RENAME) -> dict[str, str]:
    """Return the place of each sink task's store, for those sinks that declare a place.

    Args:
        rows: sink task → how many rows the job has written.
        remedy: the alternative to restoring the store.

    Raises:
        PipelineError: the file or directory of a sink that has written rows was removed.
    """
    places = planned.sink_places()
    for name in _gone(config, planned):
        if rows.get(name):
            raise PipelineError(
                f"the store of {name}, {places[name]}, is missing although the job has written {rows[name]:,} "
                f"rows; restore it ({RELATIVE}), {remedy}"
            )
    return places


def check_resumed(job: Path, config: JobConfig, planned: Plan) -> None:
    """Check the stores of a job that continues from its last checkpoint; raise the same errors as `check`."""
    newest = newest_manifest(job)
    if newest is not None and _gone(config, planned):
        stores = stood(job, Blueprint.load(job).topology, newest[1])
        check({name: rows for name, (rows, _) in stores.items()}, config, planned, AFRESH)


def _gone(config: JobConfig, planned: Plan) -> list[str]:
    if config.listen:  # the files of sinks are on other hosts
        return []
    places = planned.sink_places()
    return [name for name, place in places.items() if os.path.isabs(place) and not os.path.lexists(place)]
