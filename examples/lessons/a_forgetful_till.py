"""An operator that keeps something outside of its state is found, and named, before any failure."""

from __future__ import annotations

from examples.lessons.lesson import Lesson


def main() -> int:
    """Return 0 if the job ends with one line that names the operator and the attribute it kept."""
    with Lesson(
        "An operator keeps something where no checkpoint finds it. A check notices before a failure does."
    ) as lesson:
        lesson.say("the till counts in self.count instead of ctx.state")
        lesson.start("--set", "forgetful=1", "--verify-replay", "--checkpoint-interval", "0.4")
        status, line = lesson.end()
        lesson.say(f"status {status}: {line}")
        return int(status != 1 or "till/" not in line)
