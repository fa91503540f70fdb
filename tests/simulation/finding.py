"""The scenarios in which a sabotage is looked for, first of all one that is known to find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tests.simulation.sabotage import HOST_SABOTAGE_NAMES, HOT_SABOTAGE_NAMES, SHELL_SABOTAGE_NAMES
from tests.simulation.sabotage_shell import LAST_ROWS_REFUSED
from tests.simulation.scenario import Scenario, draw, draw_hosts, draw_hot

FOUND_WITHIN_SEEDS = 2000

SEEDS_THAT_FIND: Mapping[str, int] = {
    "skip-a-delta": 1,
    "deliver-before-storing": 2,
    "truncate-determinants-early": 0,
    "stores-truncate-early": 1,
    "truncate-in-flight-early": 1,
    "no-fence-between-tasks": 59,
    "no-fence-at-the-store": 118,
    "trust-a-shorter-log": 2,
    "no-digest": 36,
    "count-a-batch-twice": 2,
    "write-rows-again": 2,
    "answer-while-collecting": 52,
    "no-alignment": 1,
    "complete-with-one-missing": 0,
    "snapshot-of-what-waits": 0,
    "clock-is-not-logged": 0,
    "timers-do-not-fire-in-a-replay": 2,
    "ask-the-world-again": 10,
    "store-without-determinants": 1,
    "forget-in-flight": 15,
    "frames-over-barriers": 18,
    "ignore-gaps": 18,
    "determinants-one-frame-late": 1,
    "amnesia": 0,
    "same-incarnation": 0,
    "forget-dependencies": 5,
    "ordered-by-arrival": 0,
    "runs-are-not-reported": 0,
    "answers-count-twice": 8,
    "sources-hold-for-ever": 14,
    "the-source-that-holds-passes-no-barrier": 14,
    "nothing-is-asked-again": 19,
    "silent-while-busy": 13,
    "acts-overtake-the-state-they-need": 0,
    "a-state-replaced-meanwhile-is-damage": 4,
    "frames-raise-incarnations": 7,
    "answers-count-from-every-connection": 208,
    "an-older-run-may-write": 80,
    "edited-code-is-loaded": 62,
    "a-resume-takes-the-code-of-now": 0,
    "what-other-code-replays-is-not-compared": 1133,
    "keys-as-they-are-spelled": 449,
    "ask-before-its-bundle": 322,
    "keys-name-content-alone": 8,
    "keys-name-the-operator-alone": 8,
    "stable-before-it-is-written": 9,
    "the-prefix-is-not-read": 48,
    "files-of-the-dead-count": 39,
    "performed-before-it-is-begun": 42,
    "released-but-not-said": 9,
    "visible-at-the-barrier": 0,
    "nothing-is-discarded": 11,
    "nothing-is-committed-when-restored": 32,
    "acknowledged-before-staged": 0,
    "never-committed": 327,
    "staged-and-not-durable": 189,
    "staged-is-finished": 7,
    "alone-back": 17,
    "an-older-host-works-on": 85,
    "beats-of-an-older-host-count": 9,
    "silence-is-no-sign": 165,
    "standbys-beside-their-tasks": 3,
    "pins-are-forgotten": 12,
    "a-drain-is-forgotten": 2,
    "acknowledged-before-the-upload": 1,
    "a-store-that-does-not-answer-has-stored": 32,
    "determinants-count-as-soon-as-they-are-sent": 39,
    "swept-although-named": 19,
    "promoted-as-it-was": 0,
    "any-host-speaks-for-any-process": 26,
    "agents-are-believed-about-other-hosts": 26,
    "older-terms-are-obeyed": 40,
    "a-successor-misses-an-entry": 6,
    "journals-are-not-sealed": 13,
    "acted-upon-before-it-is-written": 3,
    "a-seal-is-no-hindrance": 22,
    "a-deaf-leader-stays": 12,
    "an-echo-without-logs-of-others": 15,
    "an-echo-without-dependencies": 38,
    "a-shadow-forgets-its-rows": 599,
    "a-passed-barrier-is-a-checkpoint": 630,
    "a-shadow-takes-over-anywhere": 863,
    "the-rest-of-the-log-answers": 2,
    "ordered-events-are-known-by-their-output-alone": 48,
    "the-outside-is-never-affected": 1,
    "a-shadow-is-live": 0,
}
"""Sabotage → a seed that finds it; `python -m tests.simulation --sabotage NAME` looks for one."""

LONG = frozenset({
    "acts-overtake-the-state-they-need", "forget-in-flight", "nothing-is-asked-again", "sources-hold-for-ever",
    "the-source-that-holds-passes-no-barrier",
})  # fmt: skip
"""The sabotages after which a job does not end: a scenario takes long before it counts as that."""

SOON = tuple(name for name in (*SEEDS_THAT_FIND, *SHELL_SABOTAGE_NAMES) if name not in LONG)
"""The sabotages that a known scenario finds within a few seconds; others are a campaign."""


def drawing(name: str) -> Callable[[int], Scenario]:
    """Return how a seed becomes a scenario in which the sabotage of that name is looked for."""
    if name in HOT_SABOTAGE_NAMES:
        return draw_hot
    return draw_hosts if name in HOST_SABOTAGE_NAMES else draw


def finding(name: str) -> Iterator[Scenario]:
    """Yield the scenarios in which to look for the sabotage of that name, up to seed `FOUND_WITHIN_SEEDS`."""
    if name in SHELL_SABOTAGE_NAMES:
        yield from LAST_ROWS_REFUSED
    if name in SEEDS_THAT_FIND:
        yield drawing(name)(SEEDS_THAT_FIND[name])
    yield from map(drawing(name), range(FOUND_WITHIN_SEEDS))
