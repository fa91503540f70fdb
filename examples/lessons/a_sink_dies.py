"""A sink is killed while a reader watches: rows are visible immediately, and visible rows stay."""

from __future__ import annotations

from examples.lessons.lesson import Lesson


def main() -> int:
    """Return 0 if no row that a reader has seen was changed or withdrawn."""
    with Lesson("A sink dies. Its rows were visible before any checkpoint, and none of them changes.") as lesson:
        lesson.start("--checkpoint-interval", "60")
        lesson.until("receipts are visible", lambda: lesson.rows() > 500)
        seen = lesson.receipts()
        lesson.say(f"a reader has seen {len(seen):,} receipts; no checkpoint covers them")
        lesson.kill("receipts/0")
        lesson.evening()
        status, _ = lesson.end()
        recoveries = lesson.show_recoveries()
        after = lesson.receipts()
        changed = sum(after.get(place) != row for place, row in seen.items())
        lesson.say(f"of these, {changed} have changed")
        return lesson.kept(status == 0, bool(recoveries), changed == 0)
