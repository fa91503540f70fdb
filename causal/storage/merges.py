"""Merges of snapshot files, each in a process of its own with the lowest priority, so that the task never waits.

The process reads the files of a request and writes one file under a temporary name; it is durable before it has its
name. The process ends with the pipe from which it read its request, so it does not outlive this one. In a multi-host
job, files are fetched from the shared store, and the merged file is stored there.
"""

from __future__ import annotations

import json
import logging
import queue
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from causal.effects import MergeSnapshots
from causal.errors import CausalError, CorruptData, Unavailable
from causal.events import SnapshotsMerged
from causal.process.interpreter import module_command
from causal.snapshot_files import SnapshotFile, merged_name
from causal.storage.files import ASIDE
from causal.storage.shared import Depot, insist

CLOSE_WITHIN_S = 5
MERGED_WITHIN_S = 3600
"""The time after which a merge counts as failed, and its process is killed."""
WAITING_WARNED = 256
"""The number of files that wait for a merge from which the log names it; it names it again when the number doubles."""

_log = logging.getLogger("causal.merges")


class Merges:
    """The merges of one task.

    Args:
        module: the module whose process performs a merge (`operators.runtime.merge_process`).
        done: called on another thread with each answer.
        durable: whether a merged file must survive a power failure.
    """

    def __init__(
        self, module: str, job_directory: Path, task: str, key_groups: int, done: Callable[[SnapshotsMerged], None],
        durable: bool, depot: Depot | None, fetched: Path,
    ) -> None:  # fmt: skip
        """
        Args:
            fetched: the directory for files that are fetched from the shared store.
        """
        self.bytes = 0
        """The number of bytes that merges have written."""
        self.failures = 0
        """The number of merges that have failed."""
        self._module = module
        self._job_directory = job_directory
        self._task = task
        self._key_groups = key_groups
        self._done = done
        self._durable = durable
        self._depot = depot
        self._fetched = fetched
        self._warned = WAITING_WARNED // 2
        self._requests: queue.SimpleQueue[tuple[MergeSnapshots, int] | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._work, name="merges", daemon=True)
        """The thread, which is started by the first request."""

    def ask(self, effect: MergeSnapshots, incarnation: int) -> None:
        """Begin a merge after the earlier ones; the answer is passed to `done`."""
        if self._thread.ident is None:
            self._thread.start()
        self._requests.put((effect, incarnation))

    def close(self) -> bool:
        """End the merge under way, and the thread; return whether the thread has ended."""
        self._closed.set()
        self._requests.put(None)
        process = self._process
        if process is not None:
            process.kill()
        if self._thread.ident is not None:
            self._thread.join(timeout=CLOSE_WITHIN_S)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (request := self._requests.get()) is not None and not self._closed.is_set():
            effect, incarnation = request
            self._warn(effect.waiting)
            file: SnapshotFile | None = None
            try:
                file = self._merged(effect, incarnation)
            except (CausalError, OSError) as problem:
                if not self._closed.is_set():
                    self.failures += 1
                    _log.warning(
                        "snapshots of %s are not merged for now, so a restore takes longer: %s", self._task, problem
                    )
            if not self._closed.is_set():
                self._done(SnapshotsMerged(effect.sources, file))

    def _warn(self, waiting: int) -> None:
        """Log that files wait for merges, once for each doubling of their number."""
        if waiting >= 2 * self._warned:
            self._warned = waiting
            _log.warning(
                "%s writes state faster than it is merged: %d files wait, and a restore reads all of them; take "
                "checkpoints less often, raise the parallelism, or use a faster disk",
                self._task, waiting,
            )  # fmt: skip

    def _merged(self, effect: MergeSnapshots, incarnation: int) -> SnapshotFile:
        name = merged_name(self._task, effect.first, effect.last, incarnation)
        target = self._job_directory / name
        try:
            answer = self._performed(
                {
                    "sources": [[str(self._local(path)), digest] for path, _, digest in effect.sources],
                    "target": str(target),
                    "complete": effect.first == 0,
                    "rules": effect.rules,
                    "key_groups": self._key_groups,
                    "durable": self._durable,
                }
            )
        finally:
            shutil.rmtree(self._fetched, ignore_errors=True)
            target.with_name(target.name + ASIDE).unlink(missing_ok=True)  # of a process that was killed
        size, digest = answer["size"], answer["digest"]
        self.bytes += size
        if self._depot is not None:
            self._upload(self._depot, name, target)
        return name, size, digest

    def _local(self, path: str) -> Path:
        """Return a file on this host with the content of a snapshot, which is fetched if necessary."""
        local = self._job_directory / path
        if self._depot is None or local.exists():
            return local
        content = self._depot.read(path)
        self._fetched.mkdir(mode=0o700, parents=True, exist_ok=True)
        fetched = self._fetched / Path(path).name
        fetched.write_bytes(content)
        return fetched

    def _upload(self, depot: Depot, name: str, path: Path) -> None:
        def create() -> bool:
            depot.create_own(name, path.read_bytes())
            return True

        try:
            if insist(create, lambda problem: None, lambda: not self._closed.is_set()) is None:
                raise Unavailable("the task ends")
        finally:
            path.unlink(missing_ok=True)

    def _performed(self, request: dict[str, Any]) -> dict[str, Any]:
        """Perform a request in another process.

        Raises:
            Unavailable: the process has failed; the error contains its reason.
        """
        command = module_command(self._module)
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
            self._process = process
            limit = threading.Timer(MERGED_WITHIN_S, process.kill)
            limit.daemon = True
            limit.start()
            if self._closed.is_set():
                process.kill()
            try:
                stdin, stdout = process.stdin, process.stdout
                if stdin is None or stdout is None:
                    raise Unavailable("the process that merges has no pipes")
                stdin.write(json.dumps(request).encode() + b"\n")
                stdin.flush()
                line = stdout.read()
            finally:
                self._process = None
                limit.cancel()
                process.kill()
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            raise Unavailable(f"the process that merges has ended with status {process.returncode}") from None
        if "error" in answer:
            raise CorruptData(answer["error"]) if answer["corrupt"] else Unavailable(answer["error"])
        return answer
