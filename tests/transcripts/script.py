"""A transcript as text: prose, commands (`> ...`), and below each command, indented, what it caused.

Reading and writing are inverse, so an update changes the conversation and never the words around it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROMPT = "> "
INDENT = "  "
COLUMNS_MAX = 112
GAP = 2


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was said or done: by whom (or from whom to whom), what, and the rest as parts of a list."""

    who: str
    what: str
    parts: tuple[str, ...] = ()


@dataclass(slots=True)
class Block:
    """A run of prose, or one command with its conversation."""

    command: str | None
    lines: list[str] = field(default_factory=list)


def read(path: Path) -> list[Block]:
    """Return the blocks of a file, in order.

    Raises:
        ValueError: an indented line that no command stands above.
    """
    blocks: list[Block] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith(PROMPT):
            blocks.append(Block(line[len(PROMPT) :]))
        elif line.startswith(INDENT):
            if not blocks or blocks[-1].command is None:
                raise ValueError(f"{path.name}:{number}: conversation without a command above it; begin with '> '")
            blocks[-1].lines.append(line)
        else:
            if not blocks or blocks[-1].command is not None:
                blocks.append(Block(None))
            blocks[-1].lines.append(line)
    return blocks


def written(blocks: Sequence[Block]) -> str:
    """Return the text of a file."""
    lines: list[str] = []
    for block in blocks:
        if block.command is not None:
            lines.append(PROMPT + block.command)
        lines += block.lines
    return "\n".join(lines) + "\n"


def aligned(conversations: Sequence[Sequence[Line]]) -> list[list[str]]:
    """Return all conversations of a file in the same three columns; what does not fit continues below its column."""
    every = [line for lines in conversations for line in lines]
    who = max((len(line.who) for line in every), default=0) + GAP
    what = max((len(line.what) for line in every if line.parts), default=0) + GAP
    return [[text for line in lines for text in _wrapped(line, who, what)] for lines in conversations]


def _wrapped(line: Line, who: int, what: int) -> list[str]:
    head = f"{INDENT}{line.who:<{who}}{line.what:<{what}}"
    below = " " * len(head)
    room = COLUMNS_MAX - len(head)
    together = (" " * GAP).join(line.parts)
    if len(together) <= room:
        return [(head + together).rstrip()]
    texts: list[str] = []
    for place, part in enumerate(line.parts):
        pieces = textwrap.wrap(part, room - GAP, break_long_words=False, break_on_hyphens=False) or [""]
        if place > 1 and len(pieces) == 1 and len(texts[-1]) + GAP + len(pieces[0]) <= room:
            texts[-1] += " " * GAP + pieces[0]
        else:
            texts += [pieces[0], *(INDENT + piece for piece in pieces[1:])]
    return [(head + text if not n else below + text).rstrip() for n, text in enumerate(texts or [""])]
