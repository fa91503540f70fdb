"""The number of partitions of sources that ask the outside for it; settings fix it for all processes of a job."""

from __future__ import annotations

from dataclasses import replace

from causal.config import JobConfig
from operators.builder.pipeline_settings import PARTITIONS
from operators.engine.plan import Plan


def fixing_partitions(plan: Plan, config: JobConfig) -> JobConfig:
    """Return settings that also fix the number of partitions of these sources."""
    sources = [node for node in plan.operators if node.kind == "source" and node.subject.asks_partitions]
    fixed = {PARTITIONS + node.name: str(node.subject.partitions) for node in sources}
    return replace(config, settings={**config.settings, **fixed}) if fixed else config
