"""The rule that a directory of Parquet files belongs to the newest run; rows of older runs are refused or removed."""

from __future__ import annotations

import re
from pathlib import Path

from causal.errors import PipelineError
from operators.sinks.contract.account import check_newest, foreign_rows
from operators.sinks.journaled.ledger import ledger_in
from operators.sinks.parquet.manifest import OURS, Manifest, load_manifest, store_manifest
from operators.sinks.parquet.parquet_settings import ParquetSettings

_ROWS = re.compile(r".+-\d{12,}-\d{12,}\.parquet")


def make_room(settings: ParquetSettings, run: str) -> None:
    """Claim the manifest for `run`; the caller holds the directory's lock.

    Before a zombie of an earlier run names a file, it notices that its journal has disappeared and that the manifest is
    no longer its own. The manifest names the new run before anything is removed. An older run that returns during the
    removal therefore notices it, and a run that is killed during the removal removes the rest when it returns.

    Raises:
        Superseded: a newer run has started writing to the directory.
        PipelineError: there are rows of another run or files that no run wrote, or the schema has changed.
    """
    directory, sync = settings.directory, settings.durability == "os"
    manifest = load_manifest(directory)
    if manifest is None:
        strange = sorted(path.name for path in directory.glob("*.parquet"))
        if strange:
            raise PipelineError(
                f"{directory} contains {strange[0]}, which no run wrote; give the sink its own directory"
            )
        store_manifest(directory, Manifest(run, settings.schema), sync)
    elif manifest.run != run or manifest.emptying:
        check_newest(directory, run, manifest.run)
        if manifest.run != run and _has_rows(directory, manifest) and settings.existing == "refuse":
            raise foreign_rows(directory, "ParquetSink")
        store_manifest(directory, Manifest(run, settings.schema, emptying=True), sync)
        for path in sorted(directory.glob("*.parquet")):
            if _ROWS.fullmatch(path.name):
                path.unlink(missing_ok=True)
        for path in sorted((directory / OURS).iterdir()):
            if path.suffix in (".journal", ".part"):
                path.unlink(missing_ok=True)
        store_manifest(directory, Manifest(run, settings.schema), sync)
    elif settings.schema is not None and manifest.schema != settings.schema:
        if manifest.schema is not None:
            raise PipelineError(
                f"{directory}: its files differ from ParquetSink's schema in columns or types (columns "
                f"{', '.join(manifest.schema.names)}); use the schema of these files, or another directory"
            )
        manifest.schema = settings.schema
        store_manifest(directory, manifest, sync)


def _has_rows(directory: Path, manifest: Manifest) -> bool:
    if any(manifest.files.values()):
        return True
    return any(ledger_in(journal).account.next for journal in (directory / OURS).glob("*.journal"))
