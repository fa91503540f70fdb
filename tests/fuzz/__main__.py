"""`python -m tests.fuzz [TARGET …] --seconds N`: coverage-guided fuzzing of the decoders, N seconds each.

Without a target all of them.  An input that breaks a decoder is kept as tests/fuzz/corpus/<target>/crash-…, the error
is printed, and the exit status is 1; tests/fuzz/test_corpus.py replays it from then on.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.decoders import DECODERS
from tests.fuzz.seeds import CORPUS

INPUT_BYTES_MAX = 4096
HANGS_AFTER_S = 10
PROCESS_MB_MAX = 512
STARTS_WITHIN_S = 120
NEEDED = ("atheris", "pyarrow", "numpy")
"""The packages to have: without the last two, bodies of vectors are refused unseen, each with a failing import."""
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Outcome:
    """One target's run."""

    target: str
    executions: int
    features: int
    seconds: float
    findings: int
    output: str

    def line(self) -> str:
        return f"{self.target:16} {self.executions:10,} {self.features:9,} {self.seconds:8.0f} {self.findings:9}"


def _number(pattern: str, output: str) -> int:
    numbers = re.findall(pattern, output)
    return int(numbers[-1]) if numbers else 0


def fuzz(target: str, seconds: int, seed: int) -> Outcome:
    """Run one target in a process of its own."""
    folder = CORPUS / target
    before = set(folder.glob("*"))
    with tempfile.TemporaryDirectory(prefix="causal-corpus-") as fresh:
        arguments = [
            fresh, str(folder), f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES_MAX}", f"-seed={seed}",
            f"-timeout={HANGS_AFTER_S}", f"-rss_limit_mb={PROCESS_MB_MAX}", f"-artifact_prefix={folder}/",
            "-print_final_stats=1",
        ]  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.engine", target, *arguments], cwd=ROOT, capture_output=True, text=True,
            timeout=STARTS_WITHIN_S + 3 * seconds,
        )  # fmt: skip
    output = done.stdout + done.stderr
    findings = set(folder.glob("*")) - before
    if done.returncode and not findings:
        raise SystemExit(f"fuzz: the run of {target} failed with status {done.returncode}:\n{output[-2000:]}")
    return Outcome(
        target, _number(r"number_of_executed_units: (\d+)", output), _number(r" ft: (\d+)", output),
        _number(r" in (\d+) second", output) or seconds, len(findings), output,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(DECODERS)}; default: all")
    parser.add_argument("--seconds", type=int, default=30, help="for each target (default 30)")
    parser.add_argument("--seed", type=int, default=1, help="of libFuzzer's choices (default 1)")
    options = parser.parse_args()
    unknown = sorted(set(options.targets) - set(DECODERS))
    if unknown or options.seconds < 1:
        parser.error(f"no target {', '.join(unknown)}" if unknown else "give --seconds from 1")
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        parser.error(f"{', '.join(missing)}: not installed; install the extras (pip install -e '.[fuzz,arrow]')")
    print(f"{'target':16} {'executions':>10} {'features':>9} {'seconds':>8} {'findings':>9}", flush=True)
    outcomes = []
    for target in options.targets or DECODERS:
        outcomes.append(fuzz(target, options.seconds, options.seed))
        print(outcomes[-1].line(), flush=True)
        if outcomes[-1].findings:
            print(outcomes[-1].output[-3000:], flush=True)
    return 1 if any(outcome.findings for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
