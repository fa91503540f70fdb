"""The transcripts in this folder: which there are, how one differs from what its commands cause now."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path

from tests.transcripts.interpreter import replayed
from tests.transcripts.script import read, written

FOLDER = Path(__file__).parent


def chosen(numbers: Sequence[str] = ()) -> list[Path]:
    """Return the files with these numbers; all if none is given."""
    paths = sorted(FOLDER.glob("[0-9][0-9]-*.txt"))
    wanted = {number.zfill(2) for number in numbers}
    return [path for path in paths if not wanted or path.name[:2] in wanted]


def difference(path: Path) -> str:
    """Return a diff from the file to what its commands cause now; empty if there is none."""
    stored, now = path.read_text(), written(replayed(read(path)))
    lines = unified_diff(stored.splitlines(), now.splitlines(), f"{path.name} as written", "as it is now", lineterm="")
    return "\n".join(lines)


def update(path: Path) -> bool:
    """Rewrite the file; returns whether anything changed."""
    stored, now = path.read_text(), written(replayed(read(path)))
    if now != stored:
        path.write_text(now)
    return now != stored
