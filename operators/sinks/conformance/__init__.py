"""Checks of a sink's promises, which the author of any sink can run with pytest.

    @pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
    def test_my_sink(check, tmp_path):
        check(conformance.Subject(MySink(tmp_path / "out"), read=lambda task: rows_seen_by_a_user(task)))

Each check receives a new, empty sink and either returns or raises `NotConforming`, which names the broken promise. Some
checks need functions that make the store unavailable, damage its data or make it refuse a row (see `Subject`). Without
these functions, they raise `unittest.SkipTest`, which pytest reports as skipped.

`operators.sinks.conformance.withdrawal` contains the checks for stores that can withdraw rows, and
`operators.sinks.conformance.returning` those for stores that can return to a savepoint.
"""

from collections.abc import Callable

from operators.sinks.conformance import bundles, crashes, outages, successions, value_checks, zombies
from operators.sinks.conformance.subject import (
    EPOCH_ROWS,
    OWNERS,
    NotConforming,
    Subject,
    after,
    bundle_at,
    expect,
    expect_agreement,
    expect_error,
    expect_held,
    fill,
    log_at,
    record_at,
)

__all__ = [
    "CHECKS",
    "EPOCH_ROWS",
    "OWNERS",
    "NotConforming",
    "Subject",
    "after",
    "bundle_at",
    "expect",
    "expect_agreement",
    "expect_error",
    "expect_held",
    "fill",
    "log_at",
    "record_at",
]

CHECKS: tuple[Callable[[Subject], None], ...] = (
    bundles.CHECKS + crashes.CHECKS + zombies.CHECKS + outages.CHECKS + successions.CHECKS + value_checks.CHECKS
)
"""The checks of the kit; each takes a fresh subject."""
