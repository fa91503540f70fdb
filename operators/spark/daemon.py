"""A replacement for Spark's daemon of Python workers, whose workers import a run's modules from its archive (D12).

    python -m operators.spark.daemon WORKER_MODULE

The module is set as `spark.python.daemon.module`; the workers are forked from it and inherit the finder. In an executor
without a job directory, another process reads the archive from the shared store, because the store's client starts
threads and no process may fork after creating the client.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from causal.errors import CorruptData
from causal.process.interpreter import module_command
from causal.storage.shared import Depot
from operators.code_archive.archive import Archive, path_of
from operators.code_archive.importing import ArchiveFinder, install

JOB, CODE = "CAUSAL_CODE_OF", "CAUSAL_CODE"
"""The environment variables for the job's directory and the digest of its archive."""
STORE, PLACE = "CAUSAL_CODE_STORE", "CAUSAL_CODE_PLACE"
"""Those for the URL of the shared store and the place of the run in it."""
FETCH_S = 300.0


def main() -> None:
    """Serve requests until Spark closes the standard input."""
    from pyspark.daemon import manager

    digest = os.environ.get(CODE, "")
    if digest:
        job, store = Path(os.environ[JOB]), os.environ.get(STORE, "")
        local = not store or path_of(job, digest).exists()
        install(ArchiveFinder(Archive.load(job, digest) if local else fetched(store, digest)))
    manager()


def fetched(store: str, digest: str) -> Archive:
    """Return the archive with the given digest, which another process reads from the store.

    Raises:
        CorruptData: the archive cannot be read or is damaged.
    """
    command = module_command(__spec__.name, store, os.environ[PLACE], digest)
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=FETCH_S)
    if done.returncode:
        raise CorruptData(f"{store}: the code of the run cannot be read; the preceding lines say why")
    return Archive.unpacked(done.stdout, digest, store)


def fetch(store: str, place: str, digest: str) -> None:
    """Write the archive to standard output."""
    sys.stdout.buffer.write(Depot(store, place).read(f"code/{digest}.zip"))


if __name__ == "__main__":
    if len(sys.argv) == 4:
        fetch(*sys.argv[1:])
    else:
        main()
