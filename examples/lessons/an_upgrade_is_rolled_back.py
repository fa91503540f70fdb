"""A new version fails, and the one before continues where it stood."""

from __future__ import annotations

from examples.lessons.lesson import Lesson


def main() -> int:
    """Return 0 if the version before finishes as if there had been no other."""
    with Lesson("An upgrade fails. One command returns to the version before, and no row is lost.") as lesson:
        job = lesson.start()
        lesson.until("receipts are visible", lambda: lesson.rows() > 1000)
        lesson.savepoint()
        stopped = job.wait()
        lesson.say(f"the job has stopped at a savepoint, with {lesson.rows():,} receipts")
        lesson.evening()
        # Without a checkpoint of the new version, which would be kept.
        lesson.start("--resume", "--checkpoint-interval", "60", "--set", f"mistake={lesson.rows() + 500}")
        failed, line = lesson.end()
        lesson.say(f"status {failed}: {line}")
        lesson.start("--resume", "--rollback")
        status, _ = lesson.end()
        return lesson.kept(stopped == 0, failed == 1, status == 0)
