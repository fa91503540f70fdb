"""The code that `--code new` replaces can be taken again until a checkpoint of the new code is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from causal.errors import CorruptData
from deploy.cli import _explained
from deploy.jobs.versions import BEFORE, replace_code, replaced, sweep
from standby.storage.manifests import write_manifest
from tests.unit.operators.scene import config


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    for code in ("old", "new", "newer"):
        (tmp_path / "code" / f"{code}.zip").touch()
    write_manifest(tmp_path, 3, {}, sync=False)
    return tmp_path


def archives(job: Path) -> set[str]:
    return {path.stem for path in (job / "code").glob("*.zip")}


def test_the_code_before_stays_until_a_checkpoint_is_complete(job: Path) -> None:
    replace_code(job, "old", "new")
    sweep(job, "new")
    assert replaced(job, "new") == "old" and archives(job) == {"old", "new"}
    write_manifest(job, 4, {}, sync=False)
    assert replaced(job, "new") is None
    sweep(job, "new")
    assert archives(job) == {"new"} and not (job / BEFORE).exists()


def test_what_wrote_the_log_stays_however_often_it_is_replaced(job: Path) -> None:
    replace_code(job, "old", "new")
    replace_code(job, "new", "newer")
    sweep(job, "newer")
    assert replaced(job, "newer") == "old" and archives(job) == {"old", "newer"}
    replace_code(job, "newer", "old")  # --code kept
    sweep(job, "old")
    assert replaced(job, "old") is None and archives(job) == {"old"}


def test_a_resume_with_the_same_code_forgets_nothing(job: Path) -> None:
    replace_code(job, "old", "new")
    replace_code(job, "new", "new")
    assert replaced(job, "new") == "old"


def test_a_resume_that_was_interrupted_before_it_had_the_new_code_changes_nothing(job: Path) -> None:
    replace_code(job, "old", "new")
    assert replaced(job, "old") is None
    sweep(job, "old")
    assert archives(job) == {"old"}


def test_a_damaged_note_is_one_line_that_names_it(job: Path) -> None:
    replace_code(job, "old", "new")
    (job / BEFORE).write_text((job / BEFORE).read_text().replace("old", "odd"))
    with pytest.raises(CorruptData, match=r"before.json is damaged .* remove it"):
        replaced(job, "new")


def test_only_a_replay_by_other_code_names_the_code_before(job: Path) -> None:
    differs, raised = "n/0 is nondeterministic: … (ReplayDivergence: …)", "operator 'n': ValueError"
    assert _explained(differs, job, config(code="new")) == differs
    replace_code(job, "old", "new")
    assert _explained(raised, job, config(code="new")) == raised
    line = _explained(differs, job, config(code="new"))
    assert line.startswith("its code was changed; ") and f"--code kept; {differs}" in line
