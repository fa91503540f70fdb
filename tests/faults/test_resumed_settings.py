"""A job that was killed resumes with the settings that its log was written with, and others where no row needs them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.harness.written import records_in
from deploy.jobs.resuming import APPLIED
from tests.faults.conftest import Start
from tests.faults.job import causal
from tests.faults.test_bad_input import one_line

PIPELINE = """
from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("counts")
settings = pipeline.settings
STEP = int(settings.get("step", 1))

class Count(Operator):
    def process(self, record, ctx):
        n = ctx.state["n"] = ctx.state.get("n", 0) + STEP
        yield {"key": ctx.key, "n": n, "at": ctx.now(), "dice": ctx.random.random()}

source = GeneratedSource(lambda p, i: {"k": i % 20}, count=1500, rate=500)
numbers = pipeline.source("numbers", source)
numbers.key_by(lambda r: r["k"]).process("count", Count(), parallelism=2).sink("out", SqliteSink("out.db"))
"""
COUNT, KEYS = 1500, 20

OTHERS: dict[str, Any] = {
    "durability": "os", "checkpoint_interval_s": 0.3, "replay_target_ms": 500, "standbys": "0", "processes": "per-task",
    "dead_letters": "dead", "state": "disk", "state_memory_bytes_max": 1 << 20, "state_directory": "kept",
    "channel_window_bytes": 1 << 17,
    "batch_elements_max": 1, "latency_target_ms": 0, "inflight_memory_bytes_max": 1 << 20,
    "inflight_disk_bytes_max": 1 << 28, "log_bytes_max": 1 << 24, "staged_bytes_max": 1 << 28,
    "ingest_bytes_max": 1 << 24, "kept_input_bytes_max": 0, "heartbeat_ms": 50, "heartbeat_timeout_ms": 4000,
    "stuck_after_ms": 50_000, "event_timeout_s": 60.0, "sink_retry_timeout_s": 30.0, "crash_loop_max": 7,
    "record": "1h,1GB",
    "transport": "tcp", "host_timeout_ms": 4000, "rebalance_after_s": 0.0, "verify_replay": False, "metrics_port": 0,
    "metrics_listen": "0.0.0.0",
}  # fmt: skip
"""Another value of each setting that a resume applies; the last two have their own tests."""
OF_HOSTS = {"listen", "key", "hosts", "on", "agents", "spark_conf", "hosts_expected"}


def test_what_a_replay_reads_is_refused_and_the_rest_applied(start: Start, tmp_path: Path) -> None:
    """A value that contradicts visible rows leaves a way back; in the end each element is counted once."""
    (tmp_path / "counts.py").write_text(PIPELINE)
    job = start(tmp_path / "counts.py", "--checkpoint-interval", "0.5")
    job.until_warm(records=300)
    job.kill_everything()
    visible = list(records_in(tmp_path / "out.db"))
    resume = ("run", "counts.py", "--state-dir", str(job.state), "--resume")
    for option, named in (
        (("--set", "step=2"), "setting step was '1' and is '2' now"),
        (("--hidden-nondeterminism", "refuse"), "hidden_nondeterminism was 'capture' and is 'refuse' now"),
        (("--code", "kept", "--set", "step=2"), "setting step was '1' and is '2' now"),
    ):
        status, said = causal(tmp_path, *resume, *option)
        assert status == 2 and named in one_line(said) and "savepoint --stop" in said
    status, said = job.start("--resume", "--code", "new", "--set", "step=2").finish()
    assert status == 1 and "its code or settings were changed" in said and "--code kept" in said
    assert set(OTHERS) | OF_HOSTS == APPLIED, "another value of a new setting"
    others = {**OTHERS, **{name: str(tmp_path / OTHERS[name]) for name in ("dead_letters", "state_directory")}}
    (tmp_path / OTHERS["state_directory"]).mkdir()
    (tmp_path / "others.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in others.items()))
    # With the default of `step`, which is no change.
    job.start("--resume", "--code", "kept", "--config", str(tmp_path / "others.toml"), "--set", "step=1")
    job.finish_well()
    rows = list(records_in(tmp_path / "out.db"))
    assert Counter((row["key"], row["n"]) for row in rows) == {(i % KEYS, 1 + i // KEYS): 1 for i in range(COUNT)}
    assert rows[: len(visible)] == visible
