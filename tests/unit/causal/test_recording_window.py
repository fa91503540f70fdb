"""The window of a recording: what its text means, and when a checkpoint is kept."""

from __future__ import annotations

import pytest

from causal.config import JobConfig
from causal.errors import PipelineError
from causal.recording_window import Window, window_of

DAY_S, TEN_GB = 86_400, 10 * 10**9


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("off", None),
        ("24h,10GB", Window(DAY_S, TEN_GB)),
        ("10GB, 24h", Window(DAY_S, TEN_GB)),
        ("90s", Window(90, TEN_GB)),
        ("2d", Window(2 * DAY_S, TEN_GB)),
        ("500MB", Window(DAY_S, 500 * 10**6)),
        ("15m,64KB", Window(900, 64_000)),
    ],
)
def test_a_text_means_a_window(text: str, window: Window | None) -> None:
    assert window_of(text) == window


@pytest.mark.parametrize(
    "text", ["", "24", "0h", "24h,", "24h,10GB,1h", "1h,2h", "10gb", "-1h", "1.5h", "job.py", "9" * 10 + "s", "on"]
)
def test_another_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(PipelineError, match=r"setting record is .* must be off, or a window such as 24h,10GB$"):
        JobConfig("r", "job", "/p.py", record=text)


def test_other_guarantees_have_no_log_to_record() -> None:
    for guarantee in ("epoch", "at-least-once", "none"):
        with pytest.raises(PipelineError, match="it must be causal, because other guarantees have no determinant log"):
            JobConfig("r", "job", "/p.py", record="1h", guarantee=guarantee)


def test_about_a_thousand_checkpoints_are_kept_or_more_if_there_are_many_logs() -> None:
    window = Window(1000, 16_000)
    assert not window.keeps(0.9, 999)
    assert window.keeps(1.0, 0) and window.keeps(0, 1000)
