"""The names in the directory of a job: a new job there discards all that the parts of the one before have kept."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import operators
from deploy.jobs.jobdirectory import OWNED
from operators import Pipeline
from operators.engine.plan import plan
from operators.sources import FilesSource, GeneratedSource
from operators.sources.files.file_reader import directory_of
from tests.unit.operators.scene import NoSink, config

ROOT = Path(operators.__file__).parent
JOINED = re.compile(r"job_directory / (?:\"([\w.-]+)\"|([A-Z_]+)\b)")


def kept_names() -> set[str]:
    """Return the names that the code joins to the directory of a job."""
    names = set()
    for path in ROOT.rglob("*.py"):
        for literal, constant in JOINED.findall(path.read_text()):
            module = ".".join(("operators", *path.relative_to(ROOT).with_suffix("").parts))
            names.add(literal or str(getattr(import_module(module), constant)))
    return names


def test_a_new_job_discards_all_that_its_sources_and_sinks_keep() -> None:
    names = kept_names()
    assert {"ingest", "file-listings", "logs", "console"} <= names
    assert {name.partition("/")[0] for name in names} <= set(OWNED)
    assert directory_of(Path("job"), "s").parts[1] in OWNED


def test_positions_in_listed_files_are_for_no_other_job() -> None:
    for source, travels in ((GeneratedSource(lambda p, i: i, count=1), True), (FilesSource("in/*"), False)):
        pipeline = Pipeline("test")
        pipeline.source("in", source).sink("out", NoSink())
        assert plan(pipeline, config()).positions_travel is travels
