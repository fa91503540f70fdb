"""The demonstration: runs the inverted index, kills a source, an index task and the sink, and checks every row.

The check is a plain single-process computation over the same files, independent of the job.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from examples.corpus import STANDARD_LIBRARY, documents_of, postings

ROOT = Path(__file__).resolve().parents[1]
KILLS = (("words/0", 0.5), ("index/1", 1.1), ("changes/0", 1.7))
"""(task, seconds after the first record); a quick machine performs a small library in four seconds."""

PHASES = {
    "detected_ms": "noticed", "promoted_ms": "promoted", "collected_ms": "determinants collected",
    "first_output_ms": "first new output", "live_ms": "live again",
}  # fmt: skip
LOOK_S = 1.0
UNCHANGED_S = 10.0
"""The interval after which an unchanged line is shown again."""


def expected(corpus: Path) -> dict[tuple[str, str], list[int]]:
    """(word, document) → positions, by a plain computation."""
    index: dict[tuple[str, str], list[int]] = {}
    for document in documents_of(corpus):
        text = (corpus / document).read_bytes().decode("utf-8", "replace")
        index.update({(term, document): places for term, places in postings(text).items()})
    return index


def compare(database: Path, index: Mapping[tuple[str, str], list[int]]) -> dict[str, int]:
    """Count the sink's rows that are lost, doubled, or contradict the plain computation.

    A row contradicts it if its positions are wrong, or if its count does not follow from the word's row before.
    """
    seen: dict[tuple[str, str], int] = {}
    counts: dict[str, tuple[int, int]] = {}
    contradicted = rows = 0
    with sqlite3.connect(database) as connection:
        for (record,) in connection.execute("SELECT record FROM output ORDER BY task, position"):
            row = json.loads(record)
            rows += 1
            key = (row["word"], row["document"])
            seen[key] = seen.get(key, 0) + 1
            documents, occurrences = counts.get(row["word"], (0, 0))
            follows = (documents + 1, occurrences + len(row["positions"]))
            counts[row["word"]] = (row["documents"], row["occurrences"])
            contradicted += index.get(key) != row["positions"] or counts[row["word"]] != follows
    return {
        "documents": len({document for _, document in seen}),
        "change records": rows,
        "lost": len(index.keys() - seen.keys()),
        "doubled": sum(count - 1 for count in seen.values()),
        "contradicted": contradicted,
    }


def run(directory: Path, corpus: Path) -> int:
    """Run the job with its kills, show its progress, and return its exit status."""
    argv = [sys.executable, "-m", "deploy", "run", str(ROOT / "examples" / "inverted_index.py")]
    argv += ["--set", f"out={directory / 'index.db'}", "--set", f"corpus={corpus}"]
    argv += ["--state-dir", str(directory / "job"), "--report", str(directory / "report.json")]
    for task, seconds in KILLS:
        argv += ["--kill", f"{task}@{seconds}"]
    began = time.monotonic()
    job = subprocess.Popen(argv, cwd=ROOT)
    shown, shown_at = "", began
    try:
        while job.poll() is None:
            try:
                job.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                line, now = look(directory / "job" / "status.json"), time.monotonic()
                if line != shown or now - shown_at >= UNCHANGED_S:
                    shown, shown_at = line, now
                    print(f"{now - began:5.0f} s  {line}", flush=True)
    finally:
        if job.poll() is None:
            job.terminate()
            job.wait()
    return job.returncode


def look(status: Path) -> str:
    """Return the state of the running job in one line."""
    try:
        view: dict[str, Any] = json.loads(status.read_text())
    except (FileNotFoundError, ValueError):
        return "starting"
    figures = [task["figures"] for task in view["tasks"]]
    documents = sum(each.get("records_in", 0) for each in figures)
    rows = sum(each.get("records_out", 0) for each in figures)
    if not documents:
        return "Spark is starting"
    away = [task["task"] for task in view["tasks"] if task["state"] not in ("running", "finished")]
    return f"{documents:,} documents, {rows:,} change records" + (f"; recovering {', '.join(away)}" if away else "")


def phases_of(recovery: Mapping[str, Any]) -> str:
    """Return the phases of a recovery that took place, in one line."""
    phases = ", ".join(
        f"{name} {recovery[key]:.0f} ms" for key, name in PHASES.items() if recovery.get(key) is not None
    )
    return f"{phases} ({recovery['replayed_elements']:,} elements replayed)"


def print_recoveries(report: Mapping[str, Any]) -> None:
    for recovery in report["recoveries"]:
        print(f"kill -9 of {recovery['task']}: {phases_of(recovery)}")


def main() -> int:
    """Return 0 only if every kill happened, was survived, and no row is lost, doubled or contradicted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=Path(STANDARD_LIBRARY), help="directory with *.py files")
    parser.add_argument("--keep", type=Path, help="directory for the output, kept; otherwise a temporary one")
    options = parser.parse_args()
    directory = (options.keep or Path(tempfile.mkdtemp(prefix="causal-demo-"))).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        status = run(directory, options.corpus)
        if status:
            print(f"the job failed with status {status}; logs are in {directory / 'job' / 'logs'}", file=sys.stderr)
            options.keep = directory
            return status
        report = json.loads((directory / "report.json").read_text())
        counts = compare(directory / "index.db", expected(options.corpus))
    finally:
        if not options.keep:
            shutil.rmtree(directory, ignore_errors=True)
    print_recoveries(report)
    print(", ".join(f"{name} {value:,}" for name, value in counts.items()))
    survived = {recovery["task"] for recovery in report["recoveries"]}
    missing = [task for task, _ in KILLS if task not in survived]
    if missing:
        print(f"the job ended before {', '.join(missing)} could be killed; give a larger --corpus", file=sys.stderr)
    return int(bool(missing or counts["lost"] or counts["doubled"] or counts["contradicted"]))
