"""`causal logs`: shows the lines that a job's processes have printed and logged, in chronological order.

Lines from other hosts are available even if the host has died, because each agent sends its host's lines to the
supervisor (`standby.storage.host_logs`).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from causal.errors import PipelineError
from causal.process.log_tails import LogTails
from causal.topology import Topology
from deploy.jobs.chosen import chosen_job
from deploy.jobs.lookup import names_job, running
from deploy.printable import printable
from standby.storage.host_logs import host_of

LOOK_S = 0.2
SERVERS = ("supervisor", "agent", "forkserver")


def logs(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status.

    Raises:
        PipelineError: there is no such job, or it has no such task.
    """
    if arguments.task is None and arguments.job is not None and not names_job(arguments.job):
        arguments.job, arguments.task = None, arguments.job  # `causal logs TASK`
    job = chosen_job(arguments)
    tails = LogTails(job / "logs")
    topology, others = _known(job)
    if arguments.task is not None and arguments.task not in others:
        performer = topology.performer(arguments.task)
        if performer is None:
            known = ", ".join([*(task.name for task in topology.tasks), *others])
            raise PipelineError(f"logs {arguments.task}: the task does not exist; the tasks are {known}")
        arguments.task = performer.name
    hosts = sorted(filter(None, (host_of(path.name) for path in (job / "logs").glob("*.log"))))
    if arguments.host is not None and arguments.host not in hosts:
        there = f"there are {', '.join(hosts)}" if hosts else "no host has sent any"
        raise PipelineError(f"logs --host {arguments.host}: no lines were received from that host; {there}")
    _show(_new(tails, arguments.host), arguments.task, arguments.lines)
    while arguments.follow:
        alive = running(job)  # this precedes reading the files, so that a job's last lines are shown
        _show(_new(tails, arguments.host), arguments.task, None)
        if not alive:
            break
        time.sleep(LOOK_S)
    return 0


def _known(job: Path) -> tuple[Topology, Sequence[str]]:
    """Return the graph of the job, and the names of its companions and servers."""
    from standby.blueprint import Blueprint

    blueprint = Blueprint.load(job)
    return blueprint.topology, [*(companion.name for companion in blueprint.companions), *SERVERS]


def _new(tails: LogTails, host: str | None) -> Iterator[tuple[str, str]]:
    """Yield (label, line) for each new line; for a line from another host, the label ends with the host name."""
    for path, (_, label, line) in tails.new():
        of_host = host_of(path.name)
        if host is None or host == of_host:
            yield label, line.replace(f" {label}", f" {label}@{of_host}", 1) if of_host else line


def _show(placed: Iterable[tuple[str, str]], task: str | None, lines_max: int | None) -> None:
    wanted = (line for label, line in placed if task is None or label == task)
    for line in wanted if lines_max is None else deque(wanted, maxlen=lines_max):
        sys.stdout.write(f"{printable(line)}\n")
    sys.stdout.flush()
