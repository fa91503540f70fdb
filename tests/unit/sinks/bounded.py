"""Checks of the sink kit that kill or stop writers, in bounds that fit a test run; campaigns run them whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any
from unittest import mock

from operators.sinks.conformance import Subject, steps
from operators.sinks.conformance.crashes import dies_at_every_step_of_a_write, survives_kills
from operators.sinks.conformance.returning import dies_at_every_step_of_a_return
from operators.sinks.conformance.successions import dies_at_every_step_of_a_replacement
from operators.sinks.conformance.withdrawal import withdraws_all_or_nothing
from operators.sinks.conformance.zombies import fences_zombies_at_every_step_of_a_write
from tests.members import campaign

Check = Callable[[Subject], None]

PLACES_MAX, SPREAD_MAX, KILLS = 12, 4, 8
"""The bounds instead of the kit's own; `test_kit_teeth.py` finds its broken stores in them."""

STEP_BY_STEP: tuple[Check, ...] = (
    dies_at_every_step_of_a_write,
    dies_at_every_step_of_a_replacement,
    dies_at_every_step_of_a_return,
    fences_zombies_at_every_step_of_a_write,
)
AT_RANDOM: Mapping[Check, Check] = {
    check: partial(check, kills=KILLS) for check in (survives_kills, withdraws_all_or_nothing)
}


def bounded(check: Check) -> Check:
    """Return the check at fewer steps, or with fewer kills; any other check as it is."""
    if check in AT_RANDOM:
        return wraps(check)(AT_RANDOM[check])
    if check not in STEP_BY_STEP:
        return check

    @wraps(check)
    def at_fewer_steps(subject: Subject) -> None:
        with mock.patch.multiple(steps, PLACES_MAX=PLACES_MAX, SPREAD_MAX=SPREAD_MAX):
            check(subject)

    return at_fewer_steps


def in_bounds(checks: Sequence[Check], *slow: Check) -> list[Any]:
    """Return the checks for `parametrize`, bounded, and those that are not whole, or slow, also as a campaign."""
    whole = [check for check in checks if check in slow or bounded(check) is not check]
    return [
        *(bounded(check) for check in checks if check not in slow),
        *(campaign(check, id=f"{check.__name__}, whole") for check in whole),
    ]
