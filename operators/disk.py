"""Whether an operator's state is on disk, and where: what it says itself, or else the job's setting."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from causal.config import JobConfig
from operators.graph import Node
from operators.keyed.cold_values import Disk


def disk_of(node: Node, config: JobConfig) -> Disk | None:
    """None where all of its state is in memory."""
    if (node.options.get("state") or config.state) != "disk":
        return None
    return Disk(config.state_directory or tempfile.gettempdir(), config.state_memory_bytes_max)


def located(config: JobConfig, job: Path) -> JobConfig:
    """The configuration of a process of the job in that directory: state on disk goes there, unless it says where."""
    return config if config.state_directory else replace(config, state_directory=str(job / "spill"))
