"""The guard finds a call that was added to a hot path, per batch or per record, and is silent when nothing changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import causal.channels.wire
from benchmarks.__main__ import main
from benchmarks.costs import guard, guard_count
from benchmarks.costs.guard_count import Counter
from benchmarks.costs.guard_paths import SIZES, counted
from benchmarks.harness import runs
from causal.records.batch import encode_records
from causal.records.rows import Counted

SMALL, LARGE = 64, 128
"""The sizes of batches here; those that the command counts besides take eight times as long as the large ones."""
COUNT_TURN = "count: Turn (delivered, Send), 64 records"
COUNT_RECEIVES = "count: FrameReceived (kind 1), 64 records"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def before() -> dict[str, dict[str, int]]:
    """The counts of each path, in batches of both sizes."""
    return counted(Counter(), (SMALL, LARGE))


@pytest.fixture(scope="module")
def small(before: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The same for small batches alone."""
    return {path: counts for path, counts in before.items() if path.endswith((f", {SMALL}", f", {SMALL} records"))}


def test_nothing_changed_is_silence(small: dict[str, dict[str, int]]) -> None:
    again = counted(Counter(), (SMALL,))
    assert again == small, "counts are exact"
    assert guard.compared(small, again) == ([], [])


@pytest.mark.campaign
def test_nothing_changed_is_silence_in_all_sizes() -> None:
    before, again = counted(Counter()), counted(Counter())
    assert {int(path.split(", ")[-1].split()[0]) for path in before} == set(SIZES)
    assert again == before and guard.compared(before, again) == ([], [])


def test_every_hot_path_is_counted(before: dict[str, dict[str, int]]) -> None:
    for size in (f"{SMALL} records", f"{LARGE} records"):
        steps = [path for path in before if path.endswith(f", {size}")]
        assert {path.split(" (")[0] for path in steps} >= {
            "source: Turn", "count: FrameReceived", "count: Turn", "sink: FrameReceived", "sink: Turn",
        }  # fmt: skip
        assert any("WriteBundle" in path for path in steps)
    for path in ("encode records", "decode records", "append order determinants", "decode determinants"):
        assert before[f"{path}, 64"]["instructions"] > 0
    assert all(counts["instructions"] > 0 and counts["calls"] > 0 for counts in before.values())


def test_work_per_record_is_told_from_work_per_batch(before: dict[str, dict[str, int]]) -> None:
    assert before[COUNT_RECEIVES] == before[COUNT_RECEIVES.replace(str(SMALL), str(LARGE))], (
        "the core does nothing per record"
    )
    assert before[COUNT_TURN]["instructions"] < before[COUNT_TURN.replace(str(SMALL), str(LARGE))]["instructions"]


def per_record(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return the same, with a call for each record."""

    def look(record: Any) -> Any:
        return record

    def slower(records: Any) -> bytes:
        return encode(records if isinstance(records, Counted) else [look(record) for record in records])

    return slower


def test_a_call_that_was_added_per_record_is_found(
    small: dict[str, dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operators.engine.chain.encode_records", per_record(encode_records))
    failed, better = guard.compared(small, counted(Counter(), (SMALL,)))
    assert any(line.startswith(f"{COUNT_TURN}: calls {small[COUNT_TURN]['calls']:,} before, ") for line in failed)
    assert any(line.startswith(f"{COUNT_TURN}: instructions ") for line in failed)
    assert not any("FrameReceived" in line for line in failed), "it names the path that grew and no other"
    assert not better


def test_a_call_that_was_added_per_batch_is_found(
    small: dict[str, dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack_payload = causal.channels.wire.unpack_payload

    def slower(header: Any, payload: Any) -> Any:
        size = len(payload)
        return unpack_payload(header, payload[:size])

    monkeypatch.setattr(causal.channels.wire, "unpack_payload", slower)
    failed, _ = guard.compared(small, counted(Counter(), (SMALL,)))
    assert any(line.startswith(f"{COUNT_RECEIVES}: calls ") for line in failed), failed


@pytest.mark.campaign
def test_another_list_per_batch_is_found_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    before = counted(Counter(memory=True))
    monkeypatch.setattr("operators.engine.chain.encode_records", per_record(encode_records))
    failed, _ = guard.compared(before, counted(Counter(memory=True)))
    assert any(line.startswith("count: Turn (delivered, Send), 1024 records: peak bytes ") for line in failed), failed


def test_what_is_better_gone_or_new_is_told() -> None:
    kept = {"a": {"instructions": 1_000}, "b": {"instructions": 10}, "c": {"instructions": 500}}
    failed, better = guard.compared(
        kept, {"a": {"instructions": 900}, "c": {"instructions": 504}, "d": {"instructions": 1}}
    )
    assert failed == ["b: is not counted any more; if that is meant: python -m benchmarks guard --update"]
    assert better == [
        "a: instructions 1,000 before, 900 now (-10.0%); python -m benchmarks guard --update keeps it",
        "d: is new; python -m benchmarks guard --update keeps it",
    ]


def test_the_command_keeps_compares_and_says_what_grew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = runs.printed_by("benchmarks.costs.guard_paths", str(SMALL), limit_s=guard.WITHIN_S)
    monkeypatch.setattr(runs, "printed_by", lambda *command, **limits: counts)  # counted once, not four times
    kept = tmp_path / "guard.json"
    assert main(["guard", "--kept", str(kept)]) == 1
    assert f"has no counts for Python {VERSION}" in capsys.readouterr().err
    assert main(["guard", "--kept", str(kept), "--update"]) == 0
    assert main(["guard", "--kept", str(kept)]) == 0
    assert " paths, 0 counts too high" in capsys.readouterr().out
    stored = json.loads(kept.read_text())
    old = stored[VERSION][COUNT_TURN]["calls"]
    stored[VERSION][COUNT_TURN]["calls"] = old - 20
    kept.write_text(json.dumps(stored))
    assert main(["guard", "--kept", str(kept)]) == 1
    assert f"{COUNT_TURN}: calls {old - 20:,} before, {old:,} now" in capsys.readouterr().out


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from 3.12 on several tools can look on")
def test_a_process_that_is_traced_already_is_refused() -> None:
    sys.settrace(lambda *looked: None)
    try:
        with pytest.raises(RuntimeError, match="run the guard without debugger and coverage"):
            guard_count.Counter().measure(int)
    finally:
        sys.settrace(None)
