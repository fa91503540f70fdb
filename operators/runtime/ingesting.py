"""The process that runs in addition to a job and writes a source's records into its ingest log.

    python -m operators.runtime.ingesting JOB_DIRECTORY SOURCE ROOT_PID

Exit status 0: the input has ended. 2: a restart would fail again; the last line of standard error states why. Any other
status: the process must be restarted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from causal.config import JobConfig
from causal.errors import CausalError, CorruptData, PipelineError
from causal.process import processlog
from causal.recording_window import OFF
from operators.builder.loading import load_of_job
from operators.ingest.bound import LogBounds
from operators.ingest.ingested_source import IngestedSource, log_of
from operators.ingest.marks import RECORDING


def main(argv: Sequence[str]) -> int:
    """Find the source in the job's pipeline and run its writer."""
    job_directory, name, root_pid = Path(argv[0]).resolve(), argv[1], int(argv[2])
    processlog.begin(job_directory / "logs" / f"companion-{name}.log", lambda: name)
    try:
        config = JobConfig.load(job_directory)
        source = load_of_job(job_directory, config, lasting=True).sources.get(name)
        if not isinstance(source, IngestedSource):
            raise PipelineError(f"{config.pipeline} has no source of that name with a process of its own")
        bounds = LogBounds(config.ingest_bytes_max, config.kept_input_bytes_max)
        log = log_of(job_directory, name)
        if config.record == OFF:
            log.forget([RECORDING])
        source.store(log, bounds, job_directory, root_pid)
    except (PipelineError, CorruptData) as problem:
        return _report(2, name, problem)
    except (CausalError, OSError) as problem:
        return _report(1, name, problem)
    return 0


def _report(status: int, name: str, problem: Exception) -> int:
    print(f"source {name!r}: {' '.join(str(problem).split())}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
