"""A worker that loads a state whose files may be removed meanwhile, because a later checkpoint has replaced them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from causal.errors import CorruptData
from causal.logs.rollback import NO_ROLLBACK
from operators.runtime.membership import Begin, Load
from operators.runtime.resident import Loading
from operators.runtime.worker import Worker

FILES = (("checkpoints/a/0/e1-i1.snap", 3, "00"),)


def unreadable() -> Iterator[int]:
    yield 0
    raise CorruptData("checkpoints/a/0/e1-i1.snap cannot be read")


def worker(directory: Path, act: Load | Begin, whole: bool = False) -> Any:
    image: Any = SimpleNamespace(cut=SimpleNamespace(epoch=1), whole=whole)
    return SimpleNamespace(
        directory=directory,
        following=image,
        work=SimpleNamespace(kind="", done=0),
        loading=Loading(act, image, unreadable()),
        later=[],
    )


def test_a_standby_drops_a_state_that_has_been_removed(tmp_path: Path) -> None:
    standby = worker(tmp_path, Load(0, FILES))
    Worker._load_more(standby)
    assert standby.loading is None and standby.following is None


def test_a_standby_keeps_the_files_that_it_has_loaded_completely(tmp_path: Path) -> None:
    standby = worker(tmp_path, Load(0, FILES), whole=True)
    image = standby.following
    Worker._load_more(standby)
    assert standby.loading is None and standby.following is image


def test_a_damaged_state_ends_the_standby(tmp_path: Path) -> None:
    file = tmp_path / FILES[0][0]
    file.parent.mkdir(parents=True)
    file.write_bytes(b"???")
    with pytest.raises(CorruptData):
        Worker._load_more(worker(tmp_path, Load(0, FILES)))


def test_a_task_that_begins_needs_its_state(tmp_path: Path) -> None:
    with pytest.raises(CorruptData):
        Worker._load_more(worker(tmp_path, Begin(0, 2, 1, FILES, NO_ROLLBACK)))
