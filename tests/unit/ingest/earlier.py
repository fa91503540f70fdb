"""Writes an ingest log as versions before 0031 did, from one of today."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

from operators.ingest.contract import seal

FOLDER = "ingest/numbers"


def as_earlier_version(job: Path, token: int, ended: bool) -> None:
    """Rename the files of a log without an end as an earlier version named them."""
    log = job / FOLDER
    manifests = sorted((log / "manifests").iterdir())
    for manifest in manifests:
        manifest.rename(manifest.with_suffix(".json"))
    rmtree(log / "tokens")
    (log / "fence.json").write_bytes(seal({"token": token}))
    (log / "lock").touch()
    (log / "low-water").mkdir(exist_ok=True)
    (log / "low-water" / "0.json").write_bytes(seal({"batch": 0, "done": 1}))
    if ended:
        (log / "ended.json").write_bytes(seal({"batches": len(manifests)}))
