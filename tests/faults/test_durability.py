"""The syncs of a whole job with each setting of `durability`, seen by the kernel (docs/durability.md)."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.harness.runs import sets
from tests.faults.job import PIPELINES, WAIT_S, command, environment

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

OPENING = re.compile(r"journal\.sqlite(-wal|-journal)?|job")
"""SQLite makes a new store with syncs of its own, whatever its settings are."""


def synced(directory: Path, durability: str) -> Counter[str]:
    """Return how often each file of the job's directory was synced, by its path without numbers."""
    gate, trace = directory / "gate", directory / "trace"
    gate.touch()
    settings = sets(out=directory / "rows", count=120, gate=gate)
    traced = ["strace", "-f", "--seccomp-bpf", "-y", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(trace)]
    options = ["--durability", durability, "--determinant-flush", "background", "--checkpoint-interval", "0.1"]
    run = command("run", str(PIPELINES / "row.py"), *settings, "--state-dir", str(directory / "job"), *options)
    done = subprocess.run(
        [*traced, *run], cwd=directory, env=environment(), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    if "ptrace" in done.stderr and done.returncode:
        pytest.skip(f"strace may not look: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    paths = re.findall(rf"<{re.escape(str(directory))}/([^>]+)>", trace.read_text())
    return Counter(re.sub(r"\d+", "N", path) for path in paths)


@pytest.mark.campaign
def test_process_syncs_nothing_but_new_stores(tmp_path: Path) -> None:
    counts = synced(tmp_path, "process")
    assert not [path for path in counts if not OPENING.fullmatch(Path(path).name)], counts


def test_os_syncs_everything_that_is_promised(tmp_path: Path) -> None:
    counts = synced(tmp_path, "os")
    kinds = {
        "job.json": r"job/job\.json",
        "graph": r"job/topology\.json",
        "decisions": r"job/journal\.sqlite-wal",
        "determinants": r"job/determinants/.*/iN/eN\.log",
        "bundles": r"rows/.*",
    }
    for what, pattern in kinds.items():
        assert any(re.fullmatch(pattern, path) for path in counts), (what, counts)
    snapshots = sum(times for path, times in counts.items() if re.fullmatch(r"job/checkpoints/.*\.snap\.tmp", path))
    manifests = sum(times for path, times in counts.items() if re.fullmatch(r"job/checkpoints/manifest-N.*", path))
    assert snapshots >= manifests * 6, "each of six tasks before the manifest"
