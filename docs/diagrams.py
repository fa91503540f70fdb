"""Draws the recovery state machine from its table, as Mermaid, into every page that has a place for it.

python docs/diagrams.py          # rewrite the pages; a test fails while they are not up to date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from causal.recovery import TRANSITIONS, State, Step  # noqa: E402

PAGES = ("README.md",)
_PLACE = re.compile(r"(<!-- recovery: drawn by docs/diagrams.py -->\n).*?(<!-- end -->)", re.DOTALL)
_MEANING = {
    Step.STARTED: "promoted: sockets open",
    Step.COLLECTED: "every neighbour downstream, or the store, has answered",
    Step.REPLAYED: "the log is performed to its end",
    Step.FAILED: "cannot go on",
}


def recovery() -> str:
    """The table as a state diagram; every state can fail, which is drawn once."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.RESTORED.value}"]
    for (before, step), after in TRANSITIONS.items():
        if step is not Step.FAILED:
            lines.append(f"    {before.value} --> {after.value}: {_MEANING[step]}")
    lines += [f"    {State.RUNNING.value} --> [*]: killed; its standby begins at the top", "```", ""]
    return "\n".join(lines)


def drawn(page: str) -> str:
    """The page with the present diagram in its place."""
    return _PLACE.sub(lambda place: place[1] + recovery() + place[2], page)


def main() -> None:
    for name in PAGES:
        path = ROOT / name
        path.write_text(drawn(path.read_text()))


if __name__ == "__main__":
    main()
