"""A task merges the right snapshot files in time, and a merge that fails or comes too late does no harm."""

from __future__ import annotations

from typing import Any, cast

import pytest

from causal.cut import Cut
from causal.effects import MergeSnapshots, ReportSnapshot
from causal.snapshot_files import SnapshotFile, merged_name, span_of, written_name
from causal.task import merging
from causal.task.checkpointing import FILES_MAX, Checkpointing
from causal.task.merging import FACTOR, MERGED_FROM_BYTES, PAUSE_MAX, RUN_BYTES_MAX, WRITTEN_MAX, Merging, run_of
from tests.unit.causal.test_linked_snapshots import Chain, frozen

MB = 1 << 20
RULES = {"": {"count": "value"}}


def written(epoch: int, size: int) -> SnapshotFile:
    return written_name("count/0", epoch, 1), size, f"digest {epoch}"


def chain_of(*sizes: int, merged: int = 0) -> list[SnapshotFile]:
    """A base, merged files, and files that the task has written."""
    files = [written(1, sizes[0])]
    for epoch, size in enumerate(sizes[1 : 1 + merged], 2):
        files.append((merged_name("count/0", epoch, epoch, 1), size, f"merged {epoch}"))
    return files + [written(epoch, size) for epoch, size in enumerate(sizes[1 + merged :], 2 + merged)]


def test_names_state_the_barriers_of_a_file() -> None:
    span = span_of(merged_name("count/0", 3, 17, 2))
    assert span is not None and (span.first, span.last, span.merged, span.incarnation) == (3, 17, True, 2)
    span = span_of(written_name("count/0", 9, 4))
    assert span is not None and (span.first, span.last, span.merged, span.incarnation) == (9, 9, False, 4)
    assert span_of("checkpoints/count/0/e00000009-i4-0a1b2c3d.snap") is not None
    assert span_of("checkpoints/count/0/e00000009-i4.rec") is None


@pytest.mark.parametrize(
    ("files", "run"),
    [
        (chain_of(100 * MB, *[MB] * 3), None),
        (chain_of(100 * MB, *[MB] * WRITTEN_MAX), (1, 1 + RUN_BYTES_MAX // MB)),
        (chain_of(100 * MB, *[1] * WRITTEN_MAX), (1, WRITTEN_MAX)),
        (chain_of(10 * MB, *[MB] * 7), None),
        (chain_of(10 * MB, *[MB] * 9), (0, 9)),
        (chain_of(1000 * MB, 100 * MB, 100 * MB), (1, 2)),
        (chain_of(1000 * MB, 700 * MB, 300 * MB, 100 * MB, 60 * MB, 60 * MB, merged=3), (0, 5)),
        (chain_of(3000 * MB, 700 * MB, 300 * MB, 100 * MB, 60 * MB, 60 * MB, merged=3), (1, 5)),
        (chain_of(1000, *[1] * 100), None),
        ([("unknown", 100 * MB, "digest"), *chain_of(*[MB] * 100)], None),
    ],
)
def test_files_are_merged_with_all_before_them_that_are_not_much_larger(
    files: list[SnapshotFile], run: tuple[int, int] | None
) -> None:
    assert run_of(files) == (None if run is None else range(*run))


@pytest.mark.parametrize("size", [1000, 100_000, 5 * MB])
def test_a_restore_reads_few_files_and_little_more_than_the_state(size: int) -> None:
    """All files have one size and contain different keys; each merge ends before the next snapshot."""
    merges, files, moved = Merging(RULES), [written(1, MERGED_FROM_BYTES)], 0
    for epoch in range(2, 1000):
        files.append(written(epoch, size))
        due = merges.written(files)
        while due:
            [merge] = due
            total = sum(each[1] for each in merge.sources)
            moved += total
            file = merged_name("count/0", merge.first, merge.last, 1), total, f"{epoch}"
            due = merges.merged(merge.sources, file, files)
        sizes = [each[1] for each in files]
        assert len(files) < WRITTEN_MAX + 16
        assert sum(sizes[1:]) <= max(2 * sizes[0], sizes[0] + 2 * RUN_BYTES_MAX)
    assert moved < 12 * sum(each[1] for each in files), "each byte is moved a few times"


def test_one_merge_at_a_time_and_the_newest_file_stays() -> None:
    merges, files = Merging(RULES), chain_of(100 * MB, *[MB // 2] * WRITTEN_MAX)
    [merge] = merges.written(files)
    assert merge.sources == files[1:64] and (merge.first, merge.last) == (2, 64) and merge.waiting == 1
    files.append(written(66, MB // 2))
    assert merges.written(files) == []
    one = merged_name("count/0", 2, 64, 1), 20 * MB, "merged"
    assert merges.merged(merge.sources, one, files) == []
    assert files == [written(1, 100 * MB), one, written(65, MB // 2), written(66, MB // 2)]


def test_a_merge_of_files_that_are_replaced_meanwhile_changes_nothing() -> None:
    merges, files = Merging(RULES), chain_of(100 * MB, *[MB] * WRITTEN_MAX)
    [merge] = merges.written(files)
    files[:] = [written(70, 100 * MB)]
    assert merges.merged(merge.sources, (merged_name("count/0", 2, 33, 1), 1, "merged"), files) == []
    assert files == [written(70, 100 * MB)]


def test_after_a_failure_the_next_merge_waits_for_ever_more_snapshots() -> None:
    merges, files = Merging(RULES), chain_of(100 * MB, *[MB] * WRITTEN_MAX)
    waited = []
    [merge] = merges.written(files)
    for _ in range(12):
        assert merges.merged(merge.sources, None, files) == []
        count = 1
        while not (due := merges.written(files)):
            count += 1
        [merge] = due
        waited.append(count)
    assert waited[:4] == [2, 4, 8, 16] and max(waited) == waited[-1] == PAUSE_MAX


class Merged(Chain):
    def merge_rules(self) -> Any:
        return RULES


def test_a_large_state_is_never_written_completely_unless_merges_do_not_come() -> None:
    chain = Merged()
    checkpointing = Checkpointing(cast(Any, chain), Cut(), chain_of(MERGED_FROM_BYTES, 1))
    for epoch in range(3, FILES_MAX + 2):
        frozen(checkpointing, epoch)
        effects = checkpointing.written(epoch, written(epoch, MB))
        assert isinstance(effects[0], ReportSnapshot)
        assert [type(effect) for effect in effects[1:]] in ([], [MergeSnapshots])
    assert chain.behind[:-1] == ["increment"] * (FILES_MAX - 2) and chain.behind[-1] != "increment"
    assert len(checkpointing.files) == 1


def test_a_merged_file_is_named_from_the_next_snapshot_on() -> None:
    checkpointing = Checkpointing(cast(Any, Merged()), Cut(), chain_of(100 * MB, *[MB // 2] * WRITTEN_MAX))
    frozen(checkpointing, 66)
    _, merge = checkpointing.written(66, written(66, 1))
    assert isinstance(merge, MergeSnapshots)
    one = merged_name("count/0", merge.first, merge.last, 1), 20 * MB, "merged"
    assert checkpointing.merged(merge.sources, one) == []
    frozen(checkpointing, 67)
    [report] = checkpointing.written(67, written(67, 1))
    assert isinstance(report, ReportSnapshot)
    assert report.files[:2] == [written(1, 100 * MB), one] and report.files[-1] == written(67, 1)


def test_a_state_that_cannot_be_merged_is_written_completely_as_ever() -> None:
    assert not Merging(None).takes_over(chain_of(100 * MB))
    assert Merging(RULES).takes_over(chain_of(100 * MB)) and not Merging(RULES).takes_over(chain_of(MB))
    assert FACTOR > 1 and merging.RUN_BYTES_MIN < RUN_BYTES_MAX
