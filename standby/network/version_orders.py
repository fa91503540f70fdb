"""What the supervisor of several hosts sends about the versions of its job, as its directory has them."""

from __future__ import annotations

from pathlib import Path

from causal.config import JobConfig
from standby.blueprint import FILE as GRAPH
from standby.storage.change_files import NEXT
from standby.supervision import orders


def description_of(job: Path, config: JobConfig) -> dict[str, str]:
    """Return what a host needs to take part in the present version of the job."""
    graph = (job / GRAPH).read_text()
    return {"run": config.run, "name": config.name, "job": config.for_hosts(), "graph": graph}


def version_order(job: Path, config: JobConfig) -> orders.Version:
    """Return the order for a host that has joined an earlier version."""
    return orders.Version(config.for_hosts(), (job / GRAPH).read_text())


def start_order(job: Path, slot: str, role: str, mark: str) -> orders.Start:
    """Return the order to start a process.

    Args:
        mark: the mark of the present version.

    Raises:
        PipelineError: the settings of the next version are missing here, as the command that changes the job has ended
            or is on another machine.
    """
    settings = JobConfig.load(job / NEXT).for_hosts() if role == orders.NEXT_WORKER else ""
    return orders.Start(slot, role, mark, settings)
