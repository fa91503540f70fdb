"""The files of a recording: each is read back as it was written, and refused if anything in it is different."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.cut import Cut
from causal.errors import CorruptData
from causal.recorded_files import (
    EpochEntry,
    EpochLog,
    FailureEntry,
    IntervalEntry,
    KeptEntry,
    VersionEntry,
    epoch_of_log,
    is_entry,
    log_name,
    read_entry,
)
from causal.sealed import seal, unseal
from causal.storage.files import joined, parts_of, write_parts

CUT = Cut(8, {0: (5, 6, False)}, {1: (7, 8)}, 9, marks={0: (3, False)}, places={0: "a"})
KEPT = KeptEntry(
    7, 1, 10, {"count/0": (("checkpoints/count/0/e00000007-i1.snap", 100, "ab"),), "out/0": ()}, {"lines": (3, 0)}
)
FAILED = FailureEntry("count/0", 2, 11, "standby", -1, "it was hung")
EPOCH = EpochEntry(7, 1, 12, {"count/0": (2, 33), "out/0": (1, 44)}, (FAILED,))
ENTRIES = (
    VersionEntry(1, 5, {"name": "job", "settings": {"a": "b"}}, ("count/0", "out/0")),
    KEPT,
    EPOCH,
    IntervalEntry(KEPT, (EPOCH, EpochEntry(8, 1, 13, {"count/0": (2, 5), "out/0": (1, 4)})), frozenset(("out/0",))),
)


@given(st.binary(max_size=300), st.integers(0, 1 << 40))
def test_a_log_is_read_as_it_was_written(log: bytes, replayed: int) -> None:
    written = EpochLog(log, CUT, replayed)
    assert EpochLog.of(written.parts(), "it") == written
    assert EpochLog.of(EpochLog(log * 50, CUT).parts(), "it").log == log * 50


def test_a_log_that_repeats_itself_takes_less_space() -> None:
    assert sum(map(len, EpochLog(b"abcdefgh" * 1000, CUT).parts())) < 300


@pytest.mark.parametrize("damage", [lambda p: p[:2], lambda p: [p[1], p[0], p[2]], lambda p: [p[0], p[1], b"x"]])
def test_other_parts_are_no_log(damage: Any) -> None:
    with pytest.raises(CorruptData, match="^it is not the log of an epoch"):
        EpochLog.of(damage(EpochLog(b"abcdefgh" * 10, CUT).parts()), "it")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_an_entry_is_read_as_it_was_written(entry: Any) -> None:
    assert is_entry(entry.name)
    assert read_entry(entry.name, entry.text().encode(), "it") == entry


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_a_damaged_entry_is_refused_in_one_line(entry: Any) -> None:
    text = entry.text()
    for wrong in (text[:-40], text.replace("count/0", "count/1"), "[]", "{}", "{" * 9999, seal({"format": 1})):
        with pytest.raises(CorruptData, match=r"\Ait is damaged \([^\n]*\); restore it from a copy\Z"):
            read_entry(entry.name, wrong.encode(), "it")
    with pytest.raises(CorruptData, match="it has format 9 and this version reads 1"):
        read_entry(entry.name, seal({**unseal(text), "format": 9}).encode(), "it")
    with pytest.raises(CorruptData, match="another name"):
        read_entry(entry.name.replace("000", "001", 1), text.encode(), "it")


def test_values_of_another_type_are_refused() -> None:
    content = unseal(EPOCH.text())
    others: list[dict[str, Any]] = [{"logs": {"a": 3}}, {"logs": []}, {"failures": [[1]]}, {"at_ns": "x"}]
    for wrong in others:
        with pytest.raises(CorruptData, match="it is damaged"):
            read_entry(EPOCH.name, seal({**content, **wrong}).encode(), "it")
    assert json.loads(EPOCH.text())["epoch"] == 7


def test_remains_of_interrupted_writes_are_no_entries() -> None:
    for name in ("index/.e00000007.json.123", "index/e7.json", "index/x", "e00000007.json.tmp", "c00000007.json"):
        assert not is_entry(name)


def test_the_name_of_a_log_states_its_epoch() -> None:
    assert epoch_of_log(log_name("count/0", 12, 3)) == 12 == epoch_of_log(log_name("a/0", 12, 3) + ".tmp")
    assert epoch_of_log("logs/a/0/p00000001-v000001.logs") == -1 == epoch_of_log("x")


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_joined_parts_are_a_file_of_parts(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("parts") / "file"
    write_parts(path, parts, durable=False)
    assert path.read_bytes() == joined(parts)
    assert list(parts_of(joined(parts), "it")) == parts
