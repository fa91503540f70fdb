"""The transcripts in this folder: which there are, how one differs from what its commands cause now."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path

from tests.transcripts.interpreter import replayed
from tests.transcripts.script import read, written

FOLDER = Path(__file__).parent


def chosen(numbers: Sequence[str] = ()) -> list[Path]:
    """The files with these numbers; all if none is given."""
    paths = sorted(FOLDER.glob("[0-9][0-9]-*.txt"))
    wanted = {number.zfill(2) for number in numbers}
    return [path for path in paths if not wanted or path.name[:2] in wanted]


def difference(path: Path) -> str:
    """Empty, or a diff from the file to what its commands cause now."""
    told, now = path.read_text(), written(replayed(read(path)))
    lines = unified_diff(told.splitlines(), now.splitlines(), f"{path.name} as written", "as it is now", lineterm="")
    return "\n".join(lines)


def update(path: Path) -> bool:
    """Write the file anew; whether anything changed."""
    told, now = path.read_text(), written(replayed(read(path)))
    if now != told:
        path.write_text(now)
    return now != told
