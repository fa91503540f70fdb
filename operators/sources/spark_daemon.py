"""Spark's own daemon of Python workers, which import the modules of a run from its archive (D12).

    python -m operators.sources.spark_daemon WORKER_MODULE

Set as `spark.python.daemon.module`; the workers are forked from it, and inherit the finder.
"""

from __future__ import annotations

import os
from pathlib import Path

from operators.frozen.archive import Archive
from operators.frozen.importing import ArchiveFinder, install

JOB, CODE = "CAUSAL_CODE_OF", "CAUSAL_CODE"
"""The environment variables for the job's directory and the digest of its archive."""


def main() -> None:
    """Serve until Spark closes the standard input."""
    from pyspark.daemon import manager

    digest = os.environ.get(CODE, "")
    if digest:
        install(ArchiveFinder(Archive.load(Path(os.environ[JOB]), digest)))
    manager()


if __name__ == "__main__":
    main()
