"""Measures what `matrix` varies: a base point, the axes through it, and how many records a point is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

READ_BYTES_MAX = 1 << 20
"""Large records are read fewer at a time: a batch of them must fit into a chunk."""
CORES = 2


@dataclass(frozen=True)
class Point:
    """One job."""

    batch: int = 16384
    parallelism: int = 2
    depth: int = 1
    """Counting tasks in a row."""
    sharing: str = "full"
    interval_s: float = 1.0
    keys: int = 10_000
    skew: str = "zipf"
    record_bytes: int = 16

    def __str__(self) -> str:
        """Returns what is not as in the base point."""
        base = vars(Point())
        return (
            ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if value != base[name]) or "base point"
        )

    @property
    def batch_elements_max(self) -> int:
        """Rows per read."""
        return max(1, min(self.batch, READ_BYTES_MAX // self.record_bytes))

    @property
    def tasks(self) -> tuple[int, int]:
        """Returns what decides how many processes start: (parallelism, depth)."""
        return self.parallelism, self.depth

    def options(self) -> list[str]:
        """Arguments of `causal run`."""
        kept = ["--guarantee=none"] if self.sharing == "none" else [f"--sharing-depth={self.sharing}"]
        return [*kept, f"--checkpoint-interval={self.interval_s}"]

    def settings(self, records: int) -> dict[str, Any]:
        """Settings of the pipeline."""
        return {
            "count": records,
            "parallelism": self.parallelism,
            "depth": self.depth,
            "keys": self.keys,
            "skew": self.skew,
            "record_bytes": self.record_bytes,
        }

    def records(self, seconds: float) -> int:
        """About what two cores get through in that time; a guess, and the same wherever it is made."""
        frames = 1 + self.depth * self.parallelism / 2
        per_record_us = 0.35 + 0.9 * self.depth + (3.5 if self.keys > 100_000 else 0.0)
        us = per_record_us + 0.004 * self.record_bytes + 150 * frames / self.batch_elements_max
        return max(1_000, int(seconds * CORES * 1e6 / us)) // 2 * 2


@dataclass(frozen=True)
class Axis:
    """One thing that is varied; `base` is the value of the base point, among `values`."""

    unit: str
    name: str
    """Name of the field of `Point`."""
    values: tuple[Any, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Fields that differ from the base point along this axis."""

    @property
    def base(self) -> Any:
        """The value that the others are compared with."""
        return getattr(Point(), self.name)

    def point(self, value: Any) -> Point:
        """The point at that value."""
        return replace(Point(), **{**self.fixed, self.name: value})


AXES: Mapping[str, Axis] = {
    "batch": Axis("elements per read", "batch", (1, 16, 256, 4096, 16384, 65536)),
    "parallelism": Axis("counting tasks", "parallelism", (1, 2, 4, 8)),
    "depth": Axis("counting tasks in a row", "depth", (1, 2, 3, 4, 5)),
    "sharing": Axis("sharing depth f (3 counting tasks in a row)", "sharing", ("none", "1", "2", "full"), {"depth": 3}),
    "interval": Axis("s between checkpoints", "interval_s", (0.1, 0.5, 1.0, 5.0)),
    "keys": Axis("keys", "keys", (100, 10_000, 1_000_000), {"skew": "uniform"}),
    "skew": Axis("distribution of keys", "skew", ("uniform", "zipf", "one")),
    "size": Axis("bytes per record", "record_bytes", (16, 256, 4096, 65536)),
}
