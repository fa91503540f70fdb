"""The log of a process: whole lines with time and label, a bound, and nothing that can end the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from causal.process.processlog import parsed

SETUP = """
import logging, os, sys, threading, time
from pathlib import Path
from causal.process import processlog
processlog.LOG_BYTES_MAX = 10_000
log = processlog.begin(Path(sys.argv[1]), lambda: "count/0")
"""


def lines_of(path: Path, code: str) -> list[tuple[str, str, str]]:
    """Return what a process that runs `code` has written into its log, with (label, source and text)."""
    with open(path, "ab") as file:
        subprocess.run(
            [sys.executable, "-c", SETUP + code, str(path)], stdout=file, stderr=file, timeout=60, check=False
        )
    return [parsed(line) for line in path.read_text().splitlines()]


def test_what_is_printed_and_logged_has_time_label_and_source(tmp_path: Path) -> None:
    path = tmp_path / "w1.log"
    lines = lines_of(
        path, 'print("a", end="-"); print("b\\nc"); logging.getLogger("x.y").info("d %s", 1); logging.debug("no")'
    )
    assert [(label, text) for _, label, text in lines] == [("count/0", "a-b"), ("count/0", "c"), ("count/0", "d 1")]
    assert all(at.endswith("Z") and at == lines[0][0][:11] + at[11:] for at, _, _ in lines)
    assert [line.split(" ", 2)[2].partition(":")[0] for line in path.read_text().splitlines()] == [
        "print", "print", "INFO x.y",
    ]  # fmt: skip


@pytest.mark.parametrize("gone", ["file", "directory"])
def test_a_log_that_was_removed_begins_again_with_the_next_line(tmp_path: Path, gone: str) -> None:
    path = tmp_path / "logs" / "w1.log"
    path.parent.mkdir()
    remove = "shutil.rmtree(Path(sys.argv[1]).parent)" if gone == "directory" else "os.unlink(sys.argv[1])"
    code = f'import shutil; print("before"); {remove}; print("after"); os.system("echo by a child")'
    assert [text for *_, text in lines_of(path, code)] == ["after", "by a child"]


def test_an_uncaught_exception_and_an_unfinished_line_are_there(tmp_path: Path) -> None:
    texts = [text for *_, text in lines_of(tmp_path / "w1.log", 'print("half", end=""); 1 // 0')]
    assert texts[0] == "Traceback (most recent call last):"
    assert texts[-2:] == ["ZeroDivisionError: integer division or modulo by zero", "half"]


def test_a_message_that_does_not_fit_its_arguments_is_shown(tmp_path: Path) -> None:
    [(_, _, text)] = lines_of(tmp_path / "w1.log", 'logging.warning("%d", "x")')
    assert "'%d' with ('x',) cannot be formatted: TypeError" in text


def test_a_full_file_is_replaced_and_one_before_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "w1.log"
    lines = lines_of(path, 'for i in range(1000): print("line", i)')
    assert path.stat().st_size <= 10_000 and (tmp_path / "w1.log.1").stat().st_size <= 10_000
    before = [parsed(line)[2] for line in (tmp_path / "w1.log.1").read_text().splitlines()]
    texts = before + [text for *_, text in lines]
    assert texts == [f"line {i}" for i in range(1000 - len(texts), 1000)]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["w1.log", "w1.log.1"]


def test_what_is_written_directly_counts_as_well(tmp_path: Path) -> None:
    path = tmp_path / "w1.log"
    code = """
child = os.fork()
if child == 0:
    time.sleep(0.2)
    os.write(1, b"child\\n"); os._exit(0)
for i in range(1000): os.write(1, b"direct %d\\n" % i)
print("after")
os.waitpid(child, 0)
"""
    lines_of(path, code)
    assert sorted(path.read_text().splitlines()[-2:], key=len)[0] == "child" and path.stat().st_size < 200
    before = (tmp_path / "w1.log.1").read_text()
    assert len(before) == 10_000 and before.endswith("direct 999\n")


def test_descriptors_that_lead_elsewhere_are_left_alone(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SETUP + 'for i in range(1000): print("line", i)', str(tmp_path / "w1.log")],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert len(ended.stderr.splitlines()) == 1000 and not list(tmp_path.iterdir())


def test_threads_do_not_mix_their_lines_and_a_fork_does_not_hang(tmp_path: Path) -> None:
    # Python 3.12 and later warn of a fork beside threads, which is what this test is about.
    code = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
def put(name):
    for i in range(200):
        print(name, end=" "); print(i)
threads = [threading.Thread(target=put, args=(name,)) for name in "ab"]
processlog.LOG_BYTES_MAX = 1 << 20
for thread in threads: thread.start()
for _ in range(20):
    if os.fork() == 0:
        print("child"); sys.stdout.flush(); os._exit(0)
    os.wait()
for thread in threads: thread.join()
"""
    texts = [text for *_, text in lines_of(tmp_path / "w1.log", code)]
    assert sorted(texts) == sorted([f"{name} {i}" for name in "ab" for i in range(200)] + ["child"] * 20)


def test_lines_of_others_are_taken_as_they_are() -> None:
    assert parsed("Fatal Python error: Segmentation fault") == ("", "", "Fatal Python error: Segmentation fault")
    line = "2026-11-22T09:41:53.123Z count/0 (replay) INFO a.b: x: y"
    assert parsed(line) == ("2026-11-22T09:41:53.123Z", "count/0", "x: y")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_drops_lines_and_ends_nothing(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", SETUP + 'print("lost"); logging.info("lost"); sys.exit(10 + log.dropped)', "x"],
            stdout=full, stderr=full, timeout=60, check=False,
        )  # fmt: skip
    assert ended.returncode == 12
