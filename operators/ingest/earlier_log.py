"""Gives the files of an ingest log in a directory, as versions before 0031 wrote them, the names of today.

    fence.json                → tokens/<token>
    manifests/<batch>.json    → manifests/<batch>

Marks of the readers are written again with the next checkpoint, and a query that had finished finishes again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from causal.errors import CorruptData
from causal.storage.files import sync_directory
from operators.ingest.contract import RESTORE, unseal

FENCE = "fence.json"


def adopt(directory: Path) -> None:
    """Rename the files of an earlier version, if there are any; it may be interrupted and repeated.

    The lowest manifest is renamed first: a reader begins with the lowest that it finds.

    Raises:
        CorruptData: the token of the last driver is damaged or missing.
    """
    fence, manifests = directory / FENCE, directory / "manifests"
    earlier = sorted(manifests.glob("*.json"))
    try:
        token = int(unseal(fence.read_bytes(), str(fence))["token"])
    except FileNotFoundError:
        if earlier:
            raise CorruptData(f"{fence} is missing although there are batches; {RESTORE}") from None
        return
    except (KeyError, TypeError, ValueError) as problem:
        raise CorruptData(f"{fence}: {problem}; {RESTORE}") from None
    tokens = directory / "tokens"
    tokens.mkdir(exist_ok=True)
    (tokens / f"{token:010d}").touch()
    sync_directory(tokens)
    for manifest in earlier:
        with suppress(FileNotFoundError):  # another process renames them, too
            manifest.rename(manifest.with_suffix(""))
    sync_directory(manifests)
    fence.unlink(missing_ok=True)
