"""Complete commands about the past of a job, quoted for a shell, that the page offers for copying. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

Commands = list[dict[str, str]]
"""Commands, each with its purpose."""


def of_epochs(job: str, first: int, last: int, task: str = "") -> Commands:
    """Return the commands about consecutive epochs of one version.

    Args:
        job: the job, as the user names it.
        task: a task whose events are of interest; empty for all tasks.
    """
    one = {"--epoch": str(first), **({"--task": task} if task else {})}
    epochs = f"{first}..{last}"
    commands = [
        _command("try new code on it", "diff", job, {"--code": "NEW.py", "--epoch": epochs}),
        _command("take it elsewhere, in one file", "bundle", job, {"--epoch": epochs, "-o": "bug.causal"}),
    ]
    if first == last:
        commands[:0] = [
            _command("perform it again and verify every channel", "replay", job, one),
            _command("stop at its first event, in pdb", "replay", job, one, "--pdb"),
        ]
    return commands


def of_failure(job: str, task: str, epoch: int, latest: bool) -> Commands:
    """Return the commands about a failure.

    Args:
        epoch: the epoch in which the task died.
        latest: whether it is the last failure of the task.
    """
    place = {"--task": task} if latest else {"--task": task, "--epoch": str(epoch)}
    return [
        _command("show the event at which it died", "replay", job, place, "--at-crash"),
        _command("stop there, in pdb", "replay", job, place, "--at-crash", "--pdb"),
        _command(
            "take it elsewhere, in one file", "bundle", job,
            {"--task": task, "--epoch": str(epoch), "-o": "bug.causal"},
        ),
    ]  # fmt: skip


def of_row(job: str, account: str, position: int) -> Commands:
    """Return the commands about one row."""
    place = {"--row": f"{account}:{position}"}
    return [
        {"for": "show what it comes from", "command": shlex.join(["causal", "lineage", job, account, str(position)])},
        _command("show the record that causes it, with the state before and after", "replay", job, place),
        _command("stop before that record, in pdb", "replay", job, place, "--pdb"),
    ]


def _command(purpose: str, verb: str, job: str, options: Mapping[str, str], *flags: str) -> dict[str, str]:
    """Return a command line; an option's value that begins with `-` is joined to its name."""
    arguments = [part for name, value in options.items() for part in _option(name, value)]
    return {"for": purpose, "command": shlex.join(["causal", verb, job, *arguments, *flags])}


def _option(name: str, value: str) -> list[str]:
    return [f"{name}={value}"] if value.startswith("-") else [name, value]
