"""The number of partitions of sources that ask the outside for it; settings fix it for all processes of a job."""

from __future__ import annotations

from dataclasses import replace

from causal.config import JobConfig
from operators.builder.pipeline_settings import PARTITIONS
from operators.engine.plan import Plan


def counted_sources(plan: Plan) -> dict[str, int]:
    """Return the number of partitions of each source that asks the outside for it, by the name of the source."""
    sources = [node for node in plan.operators if node.kind == "source" and node.subject.asks_partitions]
    return {node.name: node.subject.partitions for node in sources}


def fixing_partitions(plan: Plan, config: JobConfig) -> JobConfig:
    """Return settings that also fix the number of partitions of these sources."""
    fixed = {PARTITIONS + name: str(number) for name, number in counted_sources(plan).items()}
    return replace(config, settings={**config.settings, **fixed}) if fixed else config
