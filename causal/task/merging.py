"""The choice of the snapshot files that are merged in the background, so that the task never writes a large state.

A restore reads a base, which contains the whole state, then merged files from large to small, then the files that the
task has written since. When enough of the last kind exist, the oldest of them are merged, together with every file
before them that is at most `FACTOR` times as large as all that follows. Therefore each merged file is larger than
`FACTOR` times the next one, their number grows with the logarithm of the state, and the base is written again only
after changes of half of its size.
"""

from __future__ import annotations

from collections.abc import Sequence

from causal.effects import MergeSnapshots
from causal.errors import invariant
from causal.ports import MergeRules
from causal.snapshot_files import SnapshotFile, span_of

MERGED_FROM_BYTES = 4 << 20
"""The total size of the files from which they are merged; a smaller state is quickly written completely."""
WRITTEN_MAX = 64
"""The number of files that the task writes before the oldest of them are merged."""
RUN_BYTES_MAX = 32 << 20
"""The total size of the files that are merged while they are not yet divided by key group, unless one is larger."""
RUN_BYTES_MIN = 8 << 20
FACTOR = 2
PAUSE_MAX = 256
"""The maximum number of snapshots between a failed merge and the next attempt."""


def run_of(files: Sequence[SnapshotFile]) -> range | None:
    """Return the places of the files to merge now, or None if none need to be merged or a name is not known.

    The newest file is never merged, because a standby finds the recording of its epoch by its name.
    """
    sizes = [size for _, size, _ in files]
    spans = [span_of(path) for path, _, _ in files]
    if sum(sizes) < MERGED_FROM_BYTES or None in spans:
        return None
    written = 1 + sum(span is not None and span.merged for span in spans[1:])
    bytes_max = min(RUN_BYTES_MAX, max(RUN_BYTES_MIN, sizes[0] // FACTOR))
    if len(files) - written < 2 or (len(files) - written < WRITTEN_MAX and sum(sizes[written:]) < bytes_max):
        return None
    start, stop, total = written, written + 1, sizes[written]
    while stop < len(files) - 1 and total + sizes[stop] <= RUN_BYTES_MAX:
        total += sizes[stop]
        stop += 1
    while start > 0 and sizes[start - 1] <= FACTOR * total:
        start -= 1
        total += sizes[start]
    return range(start, stop)


class Merging:
    """The merge under way for one task.

    State: at most one merge is under way; after a failure, the next one waits for twice as many snapshots.
    """

    def __init__(self, rules: MergeRules) -> None:
        """
        Args:
            rules: how the chain's tables are merged; None if they cannot be.
        """
        self._rules = rules
        self._running: list[SnapshotFile] = []
        self._failures = 0
        self._pause = 0

    def takes_over(self, files: Sequence[SnapshotFile]) -> bool:
        """Return whether merges keep a restore from these files short, so that no complete snapshot is needed."""
        return (
            self._rules is not None
            and sum(size for _, size, _ in files) >= MERGED_FROM_BYTES
            and all(span_of(path) is not None for path, _, _ in files)
        )

    def written(self, files: Sequence[SnapshotFile]) -> list[MergeSnapshots]:
        """Return the merge that a new file makes necessary, if there is one."""
        self._pause = max(0, self._pause - 1)
        return self._due(files)

    def merged(
        self, sources: Sequence[SnapshotFile], file: SnapshotFile | None, files: list[SnapshotFile]
    ) -> list[MergeSnapshots]:
        """Replace the merged files in `files`, unless they are no longer in it; return the next merge.

        Args:
            file: the merged file; None if the merge has failed.
        """
        self._running = []
        if file is None:
            self._failures += 1
            self._pause = min(1 << self._failures, PAUSE_MAX)
            return []
        self._failures = 0
        start = files.index(sources[0]) if sources[0] in files else 0
        if files[start : start + len(sources)] == list(sources):
            files[start : start + len(sources)] = [file]
        return self._due(files)

    def _due(self, files: Sequence[SnapshotFile]) -> list[MergeSnapshots]:
        if self._rules is None or self._running or self._pause:
            return []
        run = run_of(files)
        if run is None:
            return []
        self._running = [files[place] for place in run]
        spans = [span for path, _, _ in self._running if (span := span_of(path)) is not None]
        invariant(len(spans) == len(run), "files with unknown names are not merged")
        first = spans[0].first if run.start else 0
        return [MergeSnapshots(self._running, first, spans[-1].last, self._rules, len(files) - run.stop)]
