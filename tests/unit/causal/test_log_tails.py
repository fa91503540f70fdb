"""Following logs: every whole line once, in the order of time, also where files are replaced, or grow too fast."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from causal.process import processlog
from causal.process.log_tails import LINE_BYTES_MAX, LogTails
from causal.process.processlog import bound


def line(second: int, label: str, text: str) -> str:
    return f"2026-11-23T07:00:{second:02d}.000Z {label} print: {text}\n"


def append(path: Path, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


def shown(tails: LogTails) -> list[str]:
    return [placed[2].rpartition(" ")[2] for _, placed in tails.new()]


def test_lines_of_all_files_come_in_the_order_of_time_and_once(tmp_path: Path) -> None:
    tails = LogTails(tmp_path)
    append(tmp_path / "w1.log", line(1, "a/0", "one") + line(4, "a/0", "four"))
    append(tmp_path / "w2.log", line(2, "b/0", "two") + "native\n" + line(5, "b/0", "five") + "2026-11-")
    assert shown(tails) == ["one", "two", "native", "four", "five"]
    append(tmp_path / "w2.log", line(6, "b/0", "six")[8:])
    assert shown(tails) == ["six"]
    assert shown(tails) == []


def test_a_file_that_was_full_is_read_to_its_end_and_then_its_successor(tmp_path: Path) -> None:
    tails = LogTails(tmp_path)
    append(tmp_path / "w1.log", line(1, "a/0", "one"))
    assert shown(tails) == ["one"]
    append(tmp_path / "w1.log", line(2, "a/0", "two"))
    os.replace(tmp_path / "w1.log", tmp_path / "w1.log.1")
    append(tmp_path / "w1.log", line(3, "a/0", "three"))
    assert shown(tails) == ["two", "three"]


def test_a_file_that_was_emptied_because_it_was_full_is_read_to_its_end_and_then_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processlog, "LOG_BYTES_MAX", 200)
    tails = LogTails(tmp_path)
    append(tmp_path / "w1.log", line(1, "a/0", "one") + line(2, "a/0", "two"))
    assert shown(tails) == ["one", "two"]
    append(tmp_path / "w1.log", line(3, "a/0", "three"))
    bound(tmp_path / "w1.log", 100)
    append(tmp_path / "w1.log", line(4, "a/0", "four"))
    assert shown(tails) == ["three", "four"]


def test_what_grows_too_fast_is_cut_to_its_end_and_counted(tmp_path: Path) -> None:
    tails = LogTails(tmp_path)
    lines = [line(second, "a/0", f"{second:04d}") for second in range(60)]
    append(tmp_path / "w1.log", "".join(lines))
    append(tmp_path / "w2.log", line(1, "b/0", "quiet"))
    budget = 6 * len(lines[0])
    texts = [placed[2] for _, placed in tails.newest(budget)]
    assert sorted(text.rpartition(" ")[2] for text in texts) == ["0057", "0058", "0059", "quiet"]
    assert any(text.startswith("(the beginning of this line was left out) ") for text in texts)
    (skipped,) = tails.skipped().items()
    assert skipped == ("w1.log", len("".join(lines)) - budget // 2)
    assert tails.skipped() == {} and tails.newest(budget) == []


def test_a_line_without_an_end_is_shown_in_parts(tmp_path: Path) -> None:
    tails = LogTails(tmp_path)
    append(tmp_path / "w1.log", "x" * (2 * LINE_BYTES_MAX))
    assert len("".join(placed[2] for _, placed in tails.new())) == 2 * LINE_BYTES_MAX


def test_a_follower_continues_where_the_one_before_has_stopped(tmp_path: Path) -> None:
    first = LogTails(tmp_path)
    append(tmp_path / "w1.log", line(1, "a/0", "one") + "2026-11-23T07:00:02.000Z a/0 pri")
    assert shown(first) == ["one"]
    append(tmp_path / "w1.log", "nt: two\n")
    append(tmp_path / "w2.log", line(3, "b/0", "three"))
    second = LogTails(tmp_path, first.read_up_to())
    assert shown(second) == ["two", "three"]


def test_files_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    tails = LogTails(tmp_path)
    append(tmp_path / "w1.log", line(1, "a/0", "one"))
    assert shown(tails) == ["one"]
    (tmp_path / "w1.log").unlink()
    assert shown(tails) == [] and tails.read_up_to() == {}
