"""Makes text from user code safe for a terminal by escaping control characters."""

from __future__ import annotations

_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) != "\t"}


def printable(line: str) -> str:
    """Return a line in which control characters, except tabs, are escaped as in a Python string."""
    return line.translate(_ESCAPED)


def one_line(text: str) -> str:
    """Return a text as a single line, with white space collapsed and control characters escaped."""
    return printable(" ".join(text.split()))
