"""The search for what a row came from: one at a time, in processes of its own, with a limit and a way to cancel it.

It performs a part of the recording again, which takes seconds to minutes. The page asks for its progress; the last
answer is kept for the pages that ask later.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from causal.errors import PipelineError, Unavailable
from causal.process.interpreter import module_command
from deploy.ui.drawn_lineage import drawn

SEARCH_S = 300.0
LISTED = 40
"""The number of input records, and of events, of which the lineage is drawn."""
ANSWER_BYTES_MAX = 8 << 20
LINE_MAX = 2000


class RowSearch:
    """The search for the origin of one row of a job.  Methods may be called from several threads."""

    def __init__(self, job: Path) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._row = ""
        self._answer: dict[str, Any] | None = None
        self._began_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = self._closed = False
        self._thread: threading.Thread | None = None

    def begin(self, account: str, position: int) -> None:
        """Begin to search, unless this row is being searched for already.

        Raises:
            Unavailable: another search is in progress.
        """
        row = f"{account}:{position}"
        with self._lock:
            if self._running():
                if self._row == row:
                    return
                raise Unavailable(f"the origin of row {self._row} is being looked up; wait for it, or cancel it")
            self._row, self._answer, self._began_s, self._cancelled = row, None, time.monotonic(), False
            self._thread = threading.Thread(target=self._search, args=(account, position), daemon=True)
            self._thread.start()

    def progress(self, account: str, position: int) -> dict[str, Any]:
        """Return the answer about a row, or for how long it has been searched for; `idle` if it is not."""
        with self._lock:
            running, mine = self._running(), self._row == f"{account}:{position}"
            if running:
                taken_s = round(time.monotonic() - self._began_s, 1)
                return {"state": "searching" if mine else "busy", "row": self._row, "for_s": taken_s}
            return self._answer if mine and self._answer is not None else {"state": "idle"}

    def cancel(self) -> None:
        """End the search in progress, if there is one."""
        with self._lock:
            self._cancelled = True
            self._kill()

    def close(self) -> None:
        """End the search in progress, and start no other."""
        self._closed = True
        self.cancel()

    def _running(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and self._answer is None

    def _search(self, account: str, position: int) -> None:
        try:
            place = f"{account}:{position}"
            then = self._run("replay", f"--row={place}", "--", str(self._job)).decode(errors="replace")
            options = ("--json", f"--limit={LISTED}", "--", str(self._job), account, str(position))
            answer = {"state": "found", "lineage": drawn(json.loads(self._run("lineage", *options))), "then": then}
        except (PipelineError, Unavailable) as problem:
            answer = {"state": "failed", "problem": str(problem)}
        except (OSError, ValueError, KeyError, TypeError) as problem:
            answer = {"state": "failed", "problem": f"its answer cannot be shown: {problem!s:.200}"}
        with self._lock:
            self._answer = answer

    def _run(self, verb: str, *arguments: str) -> bytes:
        """Run a command in a process group of its own, which ends as a whole; return what it prints."""
        with self._lock:
            if self._cancelled or self._closed:
                raise Unavailable("the search was cancelled")
            self._process = process = subprocess.Popen(
                module_command("deploy", verb, *arguments),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        try:
            printed, said = process.communicate(timeout=max(0.0, self._began_s + SEARCH_S - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"it was not found within {SEARCH_S:.0f} s; `causal {verb}` in a terminal has no limit"
            ) from None
        finally:
            with self._lock:
                self._kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        if self._cancelled:
            raise Unavailable("the search was cancelled")
        if process.returncode:
            line = said.decode(errors="replace").strip().removeprefix("causal: ")[-LINE_MAX:]
            raise PipelineError(line or f"`causal {verb}` ended with status {process.returncode}")
        if len(printed) > ANSWER_BYTES_MAX:
            raise PipelineError(
                f"the answer has {len(printed):,} bytes, more than this page shows; run `causal {verb}`"
            )
        return printed

    def _kill(self) -> None:
        """Kill the command with the processes that it has started."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
