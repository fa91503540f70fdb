"""A task is killed: its standby replays from the last checkpoint, and no other task goes back."""

from __future__ import annotations

from examples.lessons.lesson import Lesson


def main() -> int:
    """Return 0 if only the killed task was replaced, and every receipt is there once."""
    with Lesson("One task dies. Its standby takes over, and no other task notices.") as lesson:
        lesson.start()
        lesson.until("receipts are visible", lambda: lesson.rows() > 1000)
        lesson.kill("till/0")
        lesson.evening()
        status, line = lesson.end()
        lesson.show_recoveries()
        incarnations = {task["task"]: task["incarnation"] for task in lesson.view()["tasks"]}
        lesson.say(f"processes that each task has had: {incarnations}")
        replaced = [task for task, number in incarnations.items() if number > 1]
        return lesson.kept(status == 0, replaced == ["till/0"])
