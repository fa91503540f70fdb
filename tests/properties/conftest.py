"""Few examples, the same in each run, by default; `--hypothesis-profile=deep` looks for new ones, for minutes."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "deep", max_examples=2000, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
