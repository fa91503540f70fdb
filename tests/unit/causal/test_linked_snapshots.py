"""A complete snapshot also holds what has changed since the one before, where a standby gains by it, never wrongly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from causal.cut import Cut
from causal.effects import WriteSnapshot
from causal.snapshot_files import SnapshotFile
from causal.task.checkpointing import FILES_MIN, LINKED_FROM_BYTES, LINKED_MAX_BYTES, Checkpointing


@dataclass
class Encoded:
    full: bool

    def step(self, keys_max: int) -> bool:
        return True

    def parts(self, *before: bytes) -> list[bytes]:
        return [*before]


@dataclass
class Chain:
    behind: list[str] = field(default_factory=list)
    """The file that each snapshot was to link to."""

    def snapshot(self, full: bool, behind: str = "") -> Encoded:
        self.behind.append(behind if full else "increment")
        return Encoded(full)

    def merge_rules(self) -> Any:
        return None


def of_sizes(*sizes: int) -> list[SnapshotFile]:
    return [(f"{place}.snap", size, f"digest {place}") for place, size in enumerate(sizes, 1)]


def frozen(checkpointing: Checkpointing, epoch: int) -> None:
    checkpointing.freeze(Cut(epoch))
    [effect] = checkpointing.step()
    assert isinstance(effect, WriteSnapshot) and effect.epoch == epoch


def written(checkpointing: Checkpointing, epoch: int, size: int) -> None:
    assert checkpointing.written(epoch, (f"{epoch}.snap", size, f"digest {epoch}"))


@pytest.mark.parametrize(
    ("sizes", "linked"),
    [
        ([LINKED_FROM_BYTES, LINKED_FROM_BYTES + 1], True),
        ([LINKED_MAX_BYTES, LINKED_MAX_BYTES + 1], False),
        ([LINKED_MAX_BYTES, 2, LINKED_MAX_BYTES], True),
        ([1000, *[1] * FILES_MIN], False),
    ],
)
def test_large_states_are_linked_where_little_has_changed(sizes: list[int], linked: bool) -> None:
    chain = Chain()
    checkpointing = Checkpointing(cast(Any, chain), Cut(), of_sizes(*sizes))
    last = len(sizes) + 1
    frozen(checkpointing, last)
    written(checkpointing, last, sum(sizes))
    frozen(checkpointing, last + 1)
    assert chain.behind == [f"digest {last - 1}" if linked else "", "increment"]


def test_the_first_snapshot_of_all_links_to_nothing() -> None:
    chain = Chain()
    frozen(Checkpointing(cast(Any, chain), Cut(), []), 1)
    assert chain.behind == [""]


def test_what_a_hot_standby_freezes_links_to_no_file_that_it_has_not_written() -> None:
    """Its state was frozen at barriers whose files its task has written, so the last that it knows is an older one."""
    chain, large = Chain(), 2 * LINKED_FROM_BYTES
    checkpointing = Checkpointing(cast(Any, chain), Cut(), of_sizes(large, LINKED_FROM_BYTES, LINKED_FROM_BYTES + 1))
    checkpointing.withholding = True
    for epoch in (4, 5):
        frozen(checkpointing, epoch)
    withheld = WriteSnapshot(5, [])
    checkpointing.resume(4, of_sizes(large, LINKED_FROM_BYTES, LINKED_FROM_BYTES + 1, 1), withheld)
    written(checkpointing, 5, large)
    assert chain.behind == ["", ""]


def test_a_promoted_standby_links_once_it_has_written_a_snapshot_itself() -> None:
    chain, large = Chain(), 2 * LINKED_FROM_BYTES
    files = of_sizes(large, LINKED_FROM_BYTES, LINKED_FROM_BYTES + 1)
    checkpointing = Checkpointing(cast(Any, chain), Cut(), files)
    checkpointing.resume(3, files, None)
    frozen(checkpointing, 4)
    written(checkpointing, 4, large)
    for epoch in range(5, 5 + FILES_MIN * 2):
        frozen(checkpointing, epoch)
        written(checkpointing, epoch, LINKED_FROM_BYTES)
    links = [behind for behind in chain.behind if behind != "increment"]
    assert links[0] == "" and links[1] == "digest 7" and "" not in links[1:]
