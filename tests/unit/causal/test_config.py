"""Settings are refused, never guessed; what must agree is in the fingerprint."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from causal.config import LIMITS, JobConfig
from causal.errors import CausalError, InvariantViolation, PipelineError, invariant

CONFIG = JobConfig(run="r1", name="counts", pipeline="/jobs/counts.py", settings={"n": "10"})


def test_a_config_survives_its_file(tmp_path: Path) -> None:
    CONFIG.save(tmp_path)
    assert JobConfig.load(tmp_path) == CONFIG


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="does not contain a job.*causal run"):
        JobConfig.load(tmp_path)


def test_a_file_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{")
    with pytest.raises(PipelineError, match=r"job\.json is damaged"):
        JobConfig.load(tmp_path)


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(PipelineError, match="unknown setting colour"):
        JobConfig.from_mapping({"run": "r", "name": "n", "pipeline": "/p.py", "colour": 1}, "job.toml")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("guarantee", "exactly"),
        ("on_error", "ignore"),
        ("sharing_depth", 0),
        ("checkpoint_interval_s", 0),
        ("standbys", "-1"),
        ("standbys", "many"),
        ("key_groups", 0),
        ("key_groups", 1 << 16),
        ("channel_window_bytes", 100),
        ("batch_elements_max", 0),
        ("heartbeat_timeout_ms", 200),
    ],
)
def test_values_out_of_range_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(PipelineError, match=f"setting {name} is "):
        replace(CONFIG, **{name: value})


def test_every_number_has_a_limit() -> None:
    ours = {"first_incarnation", "format"}
    numbers = {each.name for each in fields(JobConfig) if type(getattr(CONFIG, each.name)) in (int, float)}
    assert numbers - ours == LIMITS.keys()


@pytest.mark.parametrize("name", LIMITS)
def test_a_number_beyond_its_limit_is_refused_and_the_limit_is_not(name: str) -> None:
    least, most, _ = LIMITS[name]
    kind = type(getattr(CONFIG, name))
    broken: dict[str, Any]
    for broken in ({name: kind(least) - 1}, {name: most + 1}, {name: math.nan}):
        with pytest.raises(PipelineError, match=f"setting {name} is .*; it must be .+"):
            replace(CONFIG, **broken)
    beats = {"heartbeat_timeout_ms": 3 * most, "host_timeout_ms": 3 * most} if name == "heartbeat_ms" else {}
    for kept in (least, most):
        values: dict[str, Any] = {"heartbeat_ms": 1, **beats, name: kind(kept)}
        assert getattr(replace(CONFIG, **values), name) == kept


@pytest.mark.parametrize("change", [{"run": "r2"}, {"guarantee": "none"}, {"sharing_depth": 1}, {"key_groups": 64}])
def test_the_fingerprint_differs_where_processes_must_agree(change: dict[str, Any]) -> None:
    assert replace(CONFIG, **change).fingerprint("graph") != CONFIG.fingerprint("graph")


def test_the_fingerprint_has_64_bits_and_ignores_what_may_differ() -> None:
    assert 0 <= CONFIG.fingerprint("graph") < 1 << 64
    assert replace(CONFIG, heartbeat_ms=50, metrics_port=9000).fingerprint("graph") == CONFIG.fingerprint("graph")
    assert CONFIG.fingerprint("other graph") != CONFIG.fingerprint("graph")


def test_an_invariant_tells_its_facts() -> None:
    invariant(True, "holds")
    with pytest.raises(InvariantViolation, match=r"^no order \(task='a/0', epoch=3\)$"):
        invariant(False, "no order", task="a/0", epoch=3)
    with pytest.raises(CausalError, match=r"^no order$"):
        invariant(0, "no order")


def test_a_host_gets_the_settings_that_are_not_at_their_defaults_and_reads_the_same_job(tmp_path: Path) -> None:
    config = JobConfig("r", "n", "/p.py", listen="tcp://127.0.0.1:1", store="file:///s", host_timeout_ms=1000)
    (tmp_path / "job.json").write_text(config.for_hosts())
    assert JobConfig.load(tmp_path) == config
    assert set(json.loads(config.for_hosts())) == {
        "digest", "format", "run", "name", "pipeline", "listen", "store", "host_timeout_ms",
    }  # fmt: skip
