"""A recorded day is performed again: dice and clocks show the same, although a till has died meanwhile."""

from __future__ import annotations

from examples.lessons.lesson import Lesson

PLACE = 1500
"""The receipt that is performed again."""


def main() -> int:
    """Return 0 if the replay verifies the day, and prints the same receipt."""
    with Lesson("The dice of yesterday are thrown again. They fall the same, although a till died.") as lesson:
        lesson.start("--record", "--checkpoint-interval", "0.3")
        lesson.until("receipts are visible", lambda: lesson.rows() > 1000)
        lesson.kill("till/1")
        lesson.evening()
        status, _ = lesson.end()
        row = lesson.receipt_at(PLACE)
        lesson.say(f"receipt {PLACE:,} has lot {row['content'][1]} (a throw of dice) and hash {row['receipt']}")
        verified = lesson.look("replay")
        shown = lesson.look("replay", "--row", f"receipts/0:{PLACE}")
        for line in (*verified, *shown):
            lesson.say(f"  {line}")
        same = any(row["receipt"] in line for line in shown)
        lesson.say(f"the hash of lot and time is {'the same' if same else 'another one'}")
        return lesson.kept(status == 0, "channels verified" in verified[-1], same)
