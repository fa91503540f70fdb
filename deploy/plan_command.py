"""`causal plan`, and the arguments that it shares with `causal run`: the pipeline and the settings."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from causal.config import PROCESSES
from causal.network.roster import Roster
from deploy import settings
from deploy.exit_status import DONE
from deploy.hosts import host_commands
from deploy.jobs.latest_view import latest
from deploy.jobs.lookup import ROOT
from deploy.monitoring import exposed as exposing
from deploy.monitoring import placement_plan
from deploy.progress.idleness import advice_on_idleness
from operators.builder.advice import advice
from operators.builder.loading import load
from operators.builder.pipeline import Pipeline
from operators.engine.plan import Plan, plan


def add_pipeline(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a pipeline and its settings."""
    parser.add_argument("pipeline", metavar="PIPELINE.py", help="a file that defines `pipeline`")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the pipeline; the last one of a name counts",
    )
    parser.add_argument("--config", metavar="FILE.toml", help="settings of the job")


def add_processes(parser: argparse.ArgumentParser) -> None:
    """Add `--processes`."""
    parser.add_argument(
        "--processes",
        choices=[each for each in PROCESSES if each],
        help="how operators share processes; default: as the pipeline says, or per-task",
    )


def explicit_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings from the configuration file, overridden by those from the command line."""
    result: dict[str, Any] = {}
    if arguments.config is not None:
        result.update(settings.read_file(Path(arguments.config)))
    options = {
        "guarantee": getattr(arguments, "guarantee", None),
        "determinant_flush": getattr(arguments, "determinant_flush", None),
        "durability": getattr(arguments, "durability", None),
        "checkpoint_interval_s": getattr(arguments, "checkpoint_interval", None),
        "processes": getattr(arguments, "processes", None),
        "standbys": getattr(arguments, "standbys", None),
        "on_error": getattr(arguments, "on_error", None),
        "hidden_nondeterminism": getattr(arguments, "hidden_nondeterminism", None),
        **host_commands.settings_of(arguments),
        "verify_replay": getattr(arguments, "verify_replay", False) or None,
        "record": getattr(arguments, "record", None),
    }
    result.update({name: value for name, value in options.items() if value is not None})
    result.update(exposing.settings_of(arguments))
    if getattr(arguments, "sharing_depth", None) is not None:
        result["sharing_depth"] = settings.sharing_depth(arguments.sharing_depth)
    if arguments.set:
        result["settings"] = {**result.get("settings", {}), **settings.assignments(arguments.set)}
    return result


def print_plan(arguments: argparse.Namespace) -> int:
    """Perform `causal plan`; return its exit status."""
    explicit = explicit_settings(arguments)
    pipeline = load(arguments.pipeline, explicit.get("settings", {}))
    settings.check_read(explicit, pipeline.settings, arguments)
    advise(pipeline)
    config = settings.config_of(pipeline.name, Path(arguments.pipeline).absolute(), explicit, arguments.config)
    planned = plan(pipeline, config)
    description = planned.describe()
    roster = arguments.roster or config.hosts
    if roster:
        description["placement"] = placement_plan.placed(planned, config, Roster.load(Path(roster)).hosts)
    if arguments.json:
        print(json.dumps(description, indent=1))
        return DONE
    width = max(len(task["task"]) for task in description["tasks"])
    for task in description["tasks"]:
        print(f"{task['task']:<{width}}  {' > '.join(task['operators'])}")
    print(*_shared(description), *_hint(pipeline.name, planned), sep="", end="")
    if roster:
        print("\n".join(placement_plan.lines(description["placement"])))
    return DONE


def _shared(description: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each process that performs several subtasks, and for each operator that shares none."""
    for task in description["tasks"]:
        if "subtasks" in task:
            names = ", ".join(task["subtasks"])
            yield f"{task['task']} performs {names} in one process; they fail and recover together\n"
    for each in description.get("apart", ()):
        yield f"{each['operator']} does not share a process with the rest, because {each['reason']}\n"


def _hint(name: str, planned: Plan) -> Iterator[str]:
    """Yield the advice of the last run of the job in this directory, if there was one with these tasks."""
    try:
        view = latest(ROOT / name)
    except ValueError:  # of another version
        return
    if view is not None and [task.task for task in view.tasks] == [task.name for task in planned.topology.tasks]:
        if advice := advice_on_idleness(view, planned.topology):
            yield f"hint: in the last run, {advice}\n"


def advise(pipeline: Pipeline) -> None:
    """Print the advice on a pipeline as warnings."""
    for line in advice(pipeline.nodes):
        print(f"causal: warning: {line}", file=sys.stderr)
