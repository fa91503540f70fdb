"""The rule for whether and where an operator's state is on disk: the operator's option, then the job's setting."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from causal.config import JobConfig
from operators.graph import Node
from operators.state.cold_values import Disk


def disk_of(node: Node, config: JobConfig) -> Disk | None:
    """Return the disk store for an operator's state, or None if all of its state is in memory."""
    if (node.options.get("state") or config.state) != "disk":
        return None
    return Disk(config.state_directory or tempfile.gettempdir(), config.state_memory_bytes_max)


def located(config: JobConfig, job: Path) -> JobConfig:
    """Return the configuration with a directory for state on disk, which is in the job directory by default."""
    return config if config.state_directory else replace(config, state_directory=str(job / "spill"))
