"""Reads a job directory for the dashboard: it reads limited amounts, rereads only what has changed, and never writes.

If a file is damaged or was written by another version, the page shows one line about it; the job is never affected.
Modules that are seldom needed are imported where they are used, so that the page appears immediately.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.errors import CausalError, CorruptData, PipelineError, Unavailable
from causal.process.interpreter import module_command
from causal.process.log_tails import LogTails
from causal.topology import Topology
from deploy.jobs.lookup import VIEW, coming_up, running
from deploy.ui.meter import AT_WORK, Meter
from deploy.ui.models import Facts, kept, letter, page
from standby.blueprint import FILE as GRAPH
from standby.blueprint import Blueprint
from standby.storage.manifest_files import newest_manifest
from standby.supervision.job_view import JobView

VIEW_BYTES_MAX = 64 << 20
LOG_BYTES_MAX, LOG_LINES_MAX, LINE_MAX = 4 << 20, 300, 2000
LETTER_BYTES_MAX, LETTER_FILES_MAX, LETTERS_MAX = 1 << 20, 200, 100
COUNTED_BYTES_MAX = 32 << 20
"""The size of a file of dead letters up to which its lines are counted."""
ANSWER_BYTES_MAX = 1 << 20
STATE_S = 30.0
"""The time that a request for the state of a key may take."""
TURN_S = 10.0
"""The time for which such a request waits for the previous one."""
SETTLED_S = 1.0
"""The time after a kill before the view shows its effect."""
CODE_LOOK_S = 5.0
"""The interval between checks of the code files, which is also the delay before the first check."""

Stamp = tuple[int, int]


class ObservedJob:
    """A job directory as seen from outside.  Methods may be called from several threads.

    Args:
        job: the job directory.
        breaks: whether the page may kill processes.
    """

    def __init__(self, job: Path, breaks: bool) -> None:
        self.path = job
        self.breaks = breaks
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._meter = Meter()
        self._stamps: dict[str, Stamp | None] = {}
        self._config: JobConfig | None = None
        self._topology: Topology | None = None
        self._view: JobView | None = None
        self._manifest: dict[str, int] = {}
        self._edited: tuple[float, list[str]] = (time.monotonic(), [])

    def page(self, letter_edges: bool = False) -> dict[str, Any]:
        """Return the model of the complete page.

        Args:
            letter_edges: whether the graph includes the edges to dead letters.

        Raises:
            PipelineError: the directory is damaged, was written by another version, or no longer exists.
        """
        with self._lock:
            facts = self._facts()
            if facts.view is not None:
                self._meter.take(facts.view)
            return page(facts, self._meter, self.breaks, letter_edges)

    def _facts(self) -> Facts:
        alive = running(self.path)  # before the view is read, so that a job that has just ended is shown as ended
        if self._changed("job.json") or self._config is None:
            self._config = JobConfig.load(self.path)
        if self._changed(GRAPH) or self._topology is None:
            self._topology = Blueprint.load(self.path).topology
        if self._changed(VIEW):
            before, self._view = self._view, self._read_view()
            if before is None or self._view is None or self._view.checkpoint.complete != before.checkpoint.complete:
                self._manifest = self._sizes()
        looked_s, edited = self._edited
        if time.monotonic() - looked_s >= CODE_LOOK_S:
            from deploy.jobs.edited import changed_since

            edited = changed_since(self.path, self._config)
            self._edited = (time.monotonic(), edited)
        view = None if alive and coming_up(self.path) else self._view
        return Facts(self._config, self._topology, view, alive, self._age_s(), self._manifest, edited)

    def settled(self, since_s: float) -> bool:
        """Return whether all tasks were at work in a view that is clearly later than `since_s` (as of `time.time()`);
        also true if the job is not running.
        """
        with self._lock:
            facts = self._facts()
            if facts.view is None or not facts.alive or facts.view.ended:
                return not facts.alive
            late = time.time() - facts.age_s > since_s + SETTLED_S
            return late and all(task.state in AT_WORK for task in facts.view.tasks)

    def _changed(self, name: str) -> bool:
        """Return whether the file has been replaced since the last call."""
        try:
            status = os.stat(self.path / name)
            stamp: Stamp | None = (status.st_mtime_ns, status.st_ino)
        except FileNotFoundError:
            stamp = None
        changed = self._stamps.get(name, (0, 0)) != stamp
        self._stamps[name] = stamp
        return changed

    def _age_s(self) -> float:
        stamp = self._stamps.get(VIEW)
        return 0.0 if stamp is None else max(0.0, time.time() - stamp[0] / 1e9)

    def _read_view(self) -> JobView | None:
        path = self.path / VIEW
        try:
            with open(path, "rb") as file:
                data = file.read(VIEW_BYTES_MAX + 1)
            if len(data) > VIEW_BYTES_MAX:
                raise ValueError(f"more than {VIEW_BYTES_MAX:,} bytes")
            return JobView.of(json.loads(data))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as problem:
            # The file is read again each time, and the page shows the error until the file is readable.
            self._stamps.pop(VIEW, None)
            raise PipelineError(
                f"{path} is damaged, or was written by another version of causal-streams ({problem!s:.80}); "
                "a running job replaces it twice a second"
            ) from None

    def _sizes(self) -> dict[str, int]:
        """Return, by task, the size in bytes of its snapshot in the last checkpoint."""
        try:
            manifest = newest_manifest(self.path)
        # The supervisor of a multi-host job keeps the manifest in the store, and a damaged manifest is no reason to
        # fail.
        except CorruptData:
            return {}
        return {} if manifest is None else {t: sum(size for _, size, _ in files) for t, files in manifest[1].items()}

    # Data that is read only on request.

    def log(self, label: str) -> list[str]:
        """Return the last log lines of a task, of `supervisor` or of `agent`; of all of them if `label` is empty."""
        newest = LogTails(self.path / "logs").newest(LOG_BYTES_MAX)
        lines = [line[:LINE_MAX] for _, (_, of, line) in newest if not label or of == label]
        return lines[-LOG_LINES_MAX:]

    def letters(self) -> dict[str, Any]:
        """Return the newest dead letters in each file, and where the files are."""
        from causal.topology import DEAD_LETTERS

        config = JobConfig.load(self.path)
        if config.store and not config.dead_letters:
            return {"where": f"{config.store}/{config.place_in_store}/{DEAD_LETTERS}", "files": [], "letters": []}
        folder = Path(config.dead_letters) if config.dead_letters else self.path / DEAD_LETTERS
        paths = sorted(folder.glob("*.jsonl"))[:LETTER_FILES_MAX] if folder.is_dir() else []
        letters: list[dict[str, Any]] = []
        for path in paths:
            letters += [letter(values, path.name, line) for line, values in _last_values(path)]
        files = [{"file": path.name, "bytes": path.stat().st_size} for path in paths]
        return {"where": str(folder), "files": files, "letters": letters[-LETTERS_MAX:][::-1]}

    def state(self, operator: str, key: str, live: bool) -> dict[str, Any]:
        """Return the state that an operator stores for a key, as `causal state` prints it.

        Raises:
            PipelineError: the error that the command prints, or the reason why the page cannot show the state.
            Unavailable: the command takes too long, or another request is under way.
        """
        try:
            return kept(self._answer(["--json", *(["--live"] if live else [])], operator, key))
        except RecursionError:
            raise PipelineError("the state is nested too deeply for the page; use `causal state`") from None

    def keys(self, operator: str, prefix: str) -> dict[str, Any]:
        """Return those keys of an operator at the last checkpoint that begin with `prefix`, or why there are none.

        The page requests keys automatically, so it is not an error if, for example, no checkpoint is complete yet.
        """
        try:
            return self._answer(["--json", f"--prefix={prefix}"], operator)
        except (PipelineError, Unavailable) as problem:
            return {"problem": " ".join(str(problem).split())}

    def _answer(self, options: list[str], *question: str) -> dict[str, Any]:
        """Return the answer of `causal state`, which runs in a separate process because it loads the pipeline's
        code.
        """
        if not self._asking.acquire(timeout=TURN_S):
            raise Unavailable("another request for the state is in progress; try again in a moment")
        try:
            status, printed, problem = self._run(module_command(
                "deploy", "state", *options, "--", str(self.path), *question
            ))  # fmt: skip
        finally:
            self._asking.release()
        said = problem.decode(errors="replace").strip().removeprefix("causal: ")[-LINE_MAX:]
        if status != 0:
            raise PipelineError(said or f"`causal state` ended with status {status}")
        if len(printed) > ANSWER_BYTES_MAX:
            raise PipelineError(
                f"the answer is {len(printed):,} bytes of JSON, more than this page accepts; run `causal state` instead"
            )
        answer: dict[str, Any] = json.loads(printed)
        return {**answer, "hint": said}

    def _run(self, command: list[str]) -> tuple[int, bytes, bytes]:
        """Run a command that `close` can end; return its status and output."""
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            self._running = child
            try:
                if self._closed:
                    child.kill()
                printed, problem = child.communicate(timeout=STATE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                raise Unavailable(f"the state was not read within {STATE_S:.0f} s") from None
            finally:
                self._running = None
            return child.returncode, printed, problem

    def close(self) -> None:
        """End the state request under way, so that its caller returns, and prevent any other from being started."""
        self._closed, asked = True, self._running
        if asked is not None:
            asked.kill()


def _last_values(path: Path) -> list[tuple[int | None, dict[str, Any]]]:
    """Return the JSON objects in the last lines of a file with the numbers of their lines, which begin with 0.

    In a very large file, lines are not counted.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        first = max(0, size - LETTER_BYTES_MAX)
        before = file.read(first).count(b"\n") if size <= COUNTED_BYTES_MAX else None
        file.seek(first)
        lines = file.read(LETTER_BYTES_MAX).split(b"\n")
    values: list[tuple[int | None, dict[str, Any]]] = []
    for number, line in [*enumerate(lines)][1 if first else 0 :][-LETTERS_MAX - 1 :]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):  # for example, the last line is just being written
            continue
        if type(value) is dict:
            values.append((None if before is None else before + number, value))
    return values


def observed(job: Path, breaks: bool) -> ObservedJob:
    """Return the job in a directory; refuse a job that cannot be shown at all.

    Raises:
        PipelineError: the job cannot be shown; the message contains the reason.
    """
    shown = ObservedJob(job, breaks)
    try:
        shown.page()
    except CausalError as problem:
        raise PipelineError(str(problem)) from None
    return shown
