"""A resume replays a log as it was written: each setting is in a class, and what a replay reads is bound to the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from causal.config import JobConfig
from causal.errors import CorruptData, PipelineError
from causal.sealed import seal
from deploy.jobs import resuming
from deploy.jobs.resuming import APPLIED, BEFORE, IDENTITY, KEPT, REPLAYED, Written, check, note, sweep, written_before
from deploy.launching.following import _explained
from operators.builder.pipeline_settings import Settings
from standby.storage.manifests import write_manifest
from tests.unit.operators.scene import config

OLD, NEW, NEWER = (config(code=code) for code in ("old", "new", "newer"))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    for code in ("old", "new", "newer"):
        (tmp_path / "code" / f"{code}.zip").touch()
    write_manifest(tmp_path, 3, {}, sync=False)
    return tmp_path


def archives(job: Path) -> set[str]:
    return {path.stem for path in (job / "code").glob("*.zip")}


def refused(before: JobConfig, now: JobConfig, read: Mapping[str, Any] | None = None) -> str:
    """Return the line with which a resume is refused; empty if it is not."""
    reads = Settings(now.settings)
    for name, default in (read or {}).items():
        reads.get(name, default)
    try:
        check(Written.by(before), now, reads)
    except PipelineError as problem:
        return str(problem)
    return ""


def test_each_setting_is_in_one_class() -> None:
    classes = (IDENTITY, KEPT, REPLAYED, APPLIED)
    names = [field.name for field in fields(JobConfig)]
    placed = {name: sum(name in each for each in classes) for name in names}
    assert set(placed.values()) == {1}, "say in deploy/jobs/resuming.py whether a replay reads a new setting"
    assert frozenset().union(*classes) == set(names)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"settings": {"n": "20"}}, "setting n was '10' and is '20' now"),
        ({"settings": {}}, "setting n was '10' and is not set now"),
        ({"settings": {"n": "10", "m": "1"}}, "setting m was not set and is '1' now"),
        ({"hidden_nondeterminism": "refuse"}, "hidden_nondeterminism was 'capture' and is 'refuse' now"),
        ({"hidden_nondeterminism": "allow"}, "hidden_nondeterminism was 'capture' and is 'allow' now"),
        ({"record_bytes_max": 1 << 20}, "record_bytes_max was 16777216 and is 1048576 now"),
    ],
)
def test_what_a_replay_reads_is_refused_by_its_name_and_values(changed: dict[str, Any], says: str) -> None:
    before = config(settings={"n": "10"})
    line = refused(before, replace(before, **changed))
    assert line.startswith(says) and "causal savepoint --stop" in line and "\n" not in line


@pytest.mark.parametrize(
    ("on_error", "changed", "taken"),
    [
        ("stop", {"on_error": "dead-letter"}, True),
        ("dead-letter", {"on_error": "stop"}, False),
        ("stop", {"record_bytes_max": 32 << 20}, True),
        ("dead-letter", {"record_bytes_max": 32 << 20}, False),
    ],
)
def test_a_change_is_taken_where_the_old_value_would_have_ended_the_job(
    on_error: str, changed: dict[str, Any], taken: bool
) -> None:
    before = config(on_error=on_error)
    assert (not refused(before, replace(before, **changed))) == taken


def test_a_value_that_is_the_default_of_the_pipeline_is_no_change() -> None:
    before = config()
    assert not refused(before, replace(before, settings={"n": "10"}), {"n": 10})
    assert refused(before, replace(before, settings={"n": "11"}), {"n": 10})
    assert not refused(replace(before, settings={"n": "10"}), before, {"n": 10})


def test_the_code_before_stays_until_a_checkpoint_is_complete(job: Path) -> None:
    note(job, OLD, NEW)
    sweep(job, NEW)
    assert written_before(job, NEW) == Written.by(OLD) and archives(job) == {"old", "new"}
    write_manifest(job, 4, {}, sync=False)
    assert written_before(job, NEW) is None
    sweep(job, NEW)
    assert archives(job) == {"new"} and not (job / BEFORE).exists()


def test_what_wrote_the_log_stays_however_often_it_is_replaced(job: Path) -> None:
    note(job, OLD, NEW)
    note(job, NEW, NEWER)
    sweep(job, NEWER)
    assert written_before(job, NEWER) == Written.by(OLD) and archives(job) == {"old", "newer"}
    note(job, NEWER, OLD)  # --code kept
    sweep(job, OLD)
    assert written_before(job, OLD) is None and archives(job) == {"old"}


def test_a_resume_with_the_same_code_forgets_nothing(job: Path) -> None:
    note(job, OLD, NEW)
    note(job, NEW, NEW)
    assert written_before(job, NEW) == Written.by(OLD)


def test_a_resume_that_was_interrupted_before_it_had_the_new_code_changes_nothing(job: Path) -> None:
    note(job, OLD, NEW)
    assert written_before(job, OLD) is None
    sweep(job, OLD)
    assert archives(job) == {"old"}


def test_other_settings_with_the_same_code_are_replaced_and_come_back(job: Path) -> None:
    before = config(code="old", settings={"n": "10"}, hidden_nondeterminism="refuse")
    now = replace(before, settings={"n": "20"}, hidden_nondeterminism="capture")
    note(job, before, now)
    sweep(job, now)
    assert archives(job) == {"old"}
    back = resuming.kept(resuming.written(job, now), now, {})
    assert back == before
    asked = resuming.kept(resuming.written(job, now), now, {"settings": {"n": "30"}})
    assert asked.settings == {"n": "30"} and asked.hidden_nondeterminism == "refuse"
    assert "n was '10' and is '30'" in refused(before, asked), "with the kept code another value is refused as well"


def test_a_note_of_the_release_before_is_read(job: Path) -> None:
    (job / BEFORE).write_text(seal({"before": "old", "code": "new", "epoch": 3}))
    before = written_before(job, NEW)
    assert before is not None and before.code == "old" and before.read == Written.by(NEW).read
    assert written_before(job, NEWER) is None


def test_a_damaged_note_is_one_line_that_names_it(job: Path) -> None:
    note(job, OLD, NEW)
    (job / BEFORE).write_text((job / BEFORE).read_text().replace("old", "odd"))
    with pytest.raises(CorruptData, match=r"before.json is damaged .* remove it"):
        written_before(job, NEW)


def test_only_a_replay_by_another_version_names_the_one_before(job: Path) -> None:
    differs, raised = "n/0 is nondeterministic: … (ReplayDivergence: …)", "operator 'n': ValueError"
    OLD.save(job)
    assert _explained(differs, job) == differs
    NEW.save(job)
    note(job, OLD, NEW)
    assert _explained(raised, job) == raised
    line = _explained(differs, job)
    assert line.startswith("its code or settings were changed; ") and f"--code kept; {differs}" in line
