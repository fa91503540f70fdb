"""The description of a job that the launcher passes to the supervisor, so that the supervisor never loads user code.

The description is stored as `topology.json` in the job directory: the graph, the companions and the kills to inject.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.errors import InvariantViolation, PipelineError
from causal.ids import ChannelId, TaskIndex, TaskName
from causal.sealed import seal, unseal
from causal.topology import Channel, Task, Topology

FILE = "topology.json"


@dataclass(frozen=True, slots=True)
class CompanionCall:
    """The command that starts a companion, which is a process that a source needs in addition to the dataflow."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Constraint:
    """The hosts on which the processes of a task may run."""

    host: str = ""
    """The only permitted host; empty for any.  The task and its standby then both run there, and are lost with it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels, with their values, that a host must have."""

    def admits(self, host: str, labels: Mapping[str, str]) -> bool:
        """Return whether the task may run on the host with that name and these labels."""
        if self.host and host != self.host:
            return False
        return all(labels.get(label) == value for label, value in self.labels.items())


@dataclass(frozen=True, slots=True)
class Blueprint:
    """The graph of the job and the processes that run in addition to it."""

    topology: Topology
    companions: tuple[CompanionCall, ...] = ()
    kills: tuple[tuple[str, float], ...] = ()
    """(task, seconds after the first record entered) for each failure to inject."""
    worker: str = "operators.runtime.worker"
    """The module that a worker process runs, with the job directory and its slot as arguments."""

    constraints: Mapping[str, Constraint] = field(default_factory=dict)
    """Task → the hosts on which its processes may run; contains only tasks that may not run on every host."""

    def mark(self, config: JobConfig) -> str:
        """Return a fingerprint of the job's settings and graph, as hosts receive them, without the kills."""
        version = (config.code, config.first_incarnation, sorted(config.settings.items()), self.topology)
        return f"{config.fingerprint(version):016x}"

    def save(self, directory: Path) -> None:
        """Write the description to its file, replacing the file atomically."""
        content = {
            **_written(self.topology),
            "companions": [[c.name, list(c.argv), dict(c.environment)] for c in self.companions],
            "kills": [list(kill) for kill in self.kills],
            "worker": self.worker,
        }
        if self.topology.cells:
            content["subtasks"] = _written(self.topology.subtasks)
            content["cells"] = [[name, list(members)] for name, members in self.topology.cells]
        if self.constraints:
            content["constraints"] = [[t, c.host, dict(c.labels)] for t, c in self.constraints.items()]
        fresh = directory / (FILE + ".new")
        fresh.write_text(seal(content))
        os.replace(fresh, directory / FILE)

    @classmethod
    def load(cls, directory: Path) -> Blueprint:
        """Read the file that `save` wrote.

        Raises:
            PipelineError: the file is missing or damaged.
        """
        path = directory / FILE
        try:
            content = unseal(path.read_text())
            topology = _read(content)
            companions = tuple(CompanionCall(name, tuple(argv), env) for name, argv, env in content["companions"])
            kills = tuple((task, float(seconds)) for task, seconds in content["kills"])
            worker = str(content["worker"])
            constraints = {t: Constraint(host, dict(labels)) for t, host, labels in content.get("constraints", ())}
            if "cells" in content:
                grouped = Topology.grouped(_read(content["subtasks"]), [(n, tuple(m)) for n, m in content["cells"]])
                if (grouped.tasks, grouped.channels) != (topology.tasks, topology.channels):
                    raise ValueError("its cells do not form its tasks")
                topology = grouped
        except FileNotFoundError:
            raise PipelineError(
                f"{directory} does not contain a job ({FILE} is missing); start one with `causal run`"
            ) from None
        except (ArithmeticError, InvariantViolation, KeyError, RecursionError, TypeError, ValueError) as problem:
            raise PipelineError(f"{path} is damaged ({problem}); start the job again without --resume") from None
        return cls(topology, companions, kills, worker, constraints)


def _written(topology: Topology) -> dict[str, Any]:
    """Return the tasks and channels of a topology as they are written."""
    return {
        "tasks": [[task.name, list(task.operators), task.ordered] for task in topology.tasks],
        "channels": [[c.source, c.target, c.partition] for c in topology.channels],
    }


def _read(content: Mapping[str, Any]) -> Topology:
    """Return the topology with these tasks and channels.

    Raises:
        InvariantViolation, KeyError, TypeError, ValueError: the content is not what `_written` returns.
    """
    tasks = tuple(
        Task(TaskIndex(place), TaskName(name), tuple(operators), bool(ordered))
        for place, (name, operators, ordered) in enumerate(content["tasks"])
    )
    channels = tuple(
        Channel(ChannelId(place), TaskIndex(source), TaskIndex(target), partition)
        for place, (source, target, partition) in enumerate(content["channels"])
    )
    for end in (end for channel in channels for end in (channel.source, channel.target, channel.partition)):
        if type(end) is not int:
            raise ValueError(f"{end!r:.80} is not the end of a channel")
    return Topology(tasks, channels)
