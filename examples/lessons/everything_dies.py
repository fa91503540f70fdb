"""Every process of a job is killed at the same moment, and the job is resumed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from examples.lessons.lesson import Lesson


def main() -> int:
    """Return 0 if the resumed job continues after the last visible row."""
    with Lesson("Everything dies at the same time. The job continues after the last row that was visible.") as lesson:
        job = lesson.start()
        lesson.until("receipts are visible", lambda: lesson.rows() > 1000)
        pids = [process["pid"] for process in lesson.view()["processes"] if process["pid"]]
        os.kill(job.pid, signal.SIGKILL)  # the kernel ends all processes below it
        lesson.end()
        lesson.until("all have ended", lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        seen = lesson.receipts()
        lesson.say(f"kill -9 of causal run and, with it, of {len(pids)} processes; {len(seen):,} receipts are visible")
        lesson.evening()
        lesson.start("--resume")
        status, _ = lesson.end()
        after = lesson.receipts()
        return lesson.kept(status == 0, all(after.get(place) == row for place, row in seen.items()))
