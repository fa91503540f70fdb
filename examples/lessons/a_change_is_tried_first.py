"""A change of the code is tried on the recorded day, before anyone deploys it."""

from __future__ import annotations

from pathlib import Path

from examples.lessons.lesson import Lesson

BEFORE = '[sale["sale"], lot, ctx.now()]'
AFTER = '[sale["sale"], lot, ctx.now() if ctx.key != 3 else round(ctx.now())]'
DIFFERENT = 3
"""The exit status of `causal diff` if rows differ."""


def main() -> int:
    """Return 0 if unchanged code gives no difference, and a change gives exactly its own."""
    with Lesson(
        "A change is tried on the recorded day. Each difference is the change's, despite dice and clocks."
    ) as lesson:
        lesson.start("--record", "--checkpoint-interval", "0.3")
        lesson.evening()
        status, _ = lesson.end()
        same, lines = lesson.ended("diff", "--code", "tills.py", "--key", "receipts=shop")
        lesson.say(f"  {lines[-1]}")
        code = Path(lesson.directory, "tills.py").read_text()
        (lesson.directory / "new.py").write_text(code.replace(BEFORE, AFTER))
        lesson.say("new.py rounds the times of shop 3")
        different, lines = lesson.ended("diff", "--code", "new.py", "--key", "receipts=shop")
        for line in lines:
            lesson.say(f"  {line}")
        only = any("1 key differs" in line for line in lines)
        where = any("operator till" in line and "new.py:" in line for line in lines)
        return lesson.kept(status == 0, same == 0, different == DIFFERENT, only, where)
