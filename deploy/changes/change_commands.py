"""`causal upgrade`, `causal rescale` and `causal rollback`: changes of a running job without a stop.

A refusal is one line and has no effect.  A command that dies leaves the current version at work, unless the supervisor
has committed the change.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.errors import PipelineError
from deploy import settings
from deploy.changes import automatic
from deploy.changes.conversation import Conversation
from deploy.changes.conversion import Version
from deploy.changes.next_version import Changed, facts_of, roll_back, upgrade
from deploy.changes.scaling import Scaling
from deploy.exit_status import DONE, FAILED, say
from deploy.jobs import versions
from deploy.jobs.hints import check_led_here, not_running
from deploy.jobs.lookup import ROOT, find_job, running
from deploy.plan_command import add_pipeline, add_processes, explicit_settings
from deploy.printable import printable
from deploy.savepoints import savepoint_store
from deploy.savepoints.rolling_back import reaches
from deploy.savepoints.savepoint_store import Savepoint
from deploy.savepoints.stored_checkpoints import fetch
from deploy.savepoints.upgrading import present
from operators.builder.pipeline_settings import PARALLELISM, asking_again
from operators.code_archive.archive import Archive
from operators.engine.counted_partitions import fixing_partitions
from operators.engine.plan import Plan, plan
from standby.blueprint import Blueprint, Constraint
from standby.storage.manifest_files import newest_manifest

OF_AGENT = ("heartbeat_ms", "heartbeat_timeout_ms", "verify_replay", "transport")
"""Settings that the agent has read; it continues to work during a change."""
OF_SUPERVISOR = ("listen", "hosts", "key", "on", "agents", "spark_conf")
"""Settings with which `causal run` has begun to find hosts."""
OF_COMPANIONS = ("ingest_bytes_max", "kept_input_bytes_max")
"""Settings that the companions have read."""


def add_parsers(commands: Any) -> None:
    """Add the commands to those of `causal`."""
    upgrading = commands.add_parser("upgrade", help="replace the code or settings of a running job")
    add_pipeline(upgrading)
    add_processes(upgrading)
    _add_running(upgrading)
    upgrading.add_argument(
        "--allow-dropped-state", action="store_true", help="leave behind state of operators that are gone"
    )
    upgrading.add_argument(
        "--canary",
        type=float,
        metavar="SECONDS",
        help="before, both versions perform so many seconds of the input without writing, and their rows are compared; "
        "there is no upgrade (status 1) if they differ",
    )
    upgrading.add_argument(
        "--accept-differences", action="store_true", help="with --canary: upgrade although the rows differ"
    )
    upgrading.add_argument("--json", action="store_true", help="with --canary: print the comparison as JSON")
    upgrading.set_defaults(act=_upgrade)

    rescaling = commands.add_parser("rescale", help="change the number of tasks of operators of a running job")
    rescaling.add_argument(
        "operators",
        metavar="OPERATOR=N",
        nargs="+",
        help="an operator, and its number of tasks; with --auto, OPERATOR=MIN..MAX",
    )
    automatic.add_options(rescaling)
    _add_running(rescaling)
    rescaling.set_defaults(act=_rescale)

    returning = commands.add_parser("rollback", help="return a running job to a savepoint, and withdraw its rows since")
    returning.add_argument(
        "savepoint", metavar="SAVEPOINT", nargs="?", default="", help="default: that at which the last change was made"
    )
    _add_running(returning)
    returning.set_defaults(act=_roll_back)


def _add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", dest="name", metavar="NAME", help=f"a job under {ROOT}; default: the only one")
    parser.add_argument("--state-dir", metavar="DIR", help="the job's directory")


def _upgrade(arguments: argparse.Namespace) -> int:
    explicit, path = explicit_settings(arguments), Path(arguments.pipeline).absolute()
    if arguments.name is None:
        job = versions.job_of(path, arguments.state_dir, explicit.get("settings", {}))
    else:
        job = find_job(arguments.name, arguments.state_dir)
    before = _of_running(job)
    savepoint_store.check_room(job)
    unfixed = replace(before, settings=asking_again(before.settings))
    config = settings.resumed(unfixed, path, explicit, arguments.config)
    _check_settings(before, config)
    loaded = versions.first(path, dict(config.settings))
    versions.check_name(job, before, path, loaded)
    settings.check_read(explicit, loaded.pipeline.settings, arguments)
    planned = plan(loaded.pipeline, config)
    config = fixing_partitions(planned, config)
    version = _version(job, config, planned, loaded.planned(planned).archive, arguments.allow_dropped_state)
    if arguments.canary is None and (arguments.accept_differences or arguments.json):
        raise PipelineError("--accept-differences and --json are options of --canary SECONDS, which is missing")
    if arguments.canary is not None and (problem := _differences(job, before, version, arguments)):
        return say(problem, FAILED)
    with Conversation(job) as conversation:
        changed = upgrade(job, version, conversation)
    print(f"{config.name} is upgraded; {changed.took}; `causal rollback` reverts it")
    return DONE


def _differences(job: Path, before: JobConfig, version: Version, arguments: argparse.Namespace) -> str:
    """Compare both versions and print the result; return why the upgrade must not follow, or an empty string.

    Raises:
        PipelineError: the versions cannot be compared, or the job cannot change.
    """
    from deploy.changes.canary import compare  # other commands do not need this module

    if not 0 < arguments.canary < float("inf"):
        raise PipelineError(f"--canary is {arguments.canary:g}; use a number of seconds above 0")
    with Conversation(job) as conversation:
        facts_of(conversation)
    canary = compare(job, before, version, arguments.canary)
    print(canary.document() if arguments.json else "\n".join(map(printable, canary.lines())), flush=True)
    if not canary.verdict or arguments.accept_differences and not canary.failures:
        return ""
    remedy = "" if canary.failures else "; to upgrade, repeat the command without --canary or with --accept-differences"
    return f"{version.config.name} is not upgraded, because {canary.verdict}{remedy}"


def _rescale(arguments: argparse.Namespace) -> int:
    job = find_job(arguments.name, arguments.state_dir)
    if arguments.auto:
        return _rescale_automatically(job, arguments)
    automatic.check_absent(arguments)
    numbers = settings.assignments(arguments.operators, "", "OPERATOR=N")
    changed = _rescaled(job, numbers)
    if changed is None:
        print(f"{JobConfig.load(job).name} has these tasks already; nothing is changed")
        return DONE
    tasks = ", ".join(f"{name} has {number} task{'s' * (int(number) != 1)}" for name, number in numbers.items())
    print(f"{tasks}; {changed.took}; `causal rollback` reverts it")
    return DONE


def _rescale_automatically(job: Path, arguments: argparse.Namespace) -> int:
    bounds, thresholds = automatic.bounds_of(arguments.operators), automatic.thresholds_of(arguments)
    _rescaled_version(job, {name: str(each.least) for name, each in bounds.items()})
    _rescaled_version(job, {name: str(each.most) for name, each in bounds.items()})
    with Conversation(job) as conversation:
        facts_of(conversation)
    ranges = ", ".join(f"{name} ({each.least}..{each.most})" for name, each in bounds.items())
    print(f"watches {ranges} until the job ends", flush=True)
    automatic.watch(job, Scaling(thresholds, bounds), lambda numbers: _rescaled(job, numbers))
    return DONE


def _rescaled(job: Path, numbers: Mapping[str, str]) -> Changed | None:
    """Change the number of tasks of operators of a running job; return None if they have these tasks already."""
    version = _rescaled_version(job, numbers)
    if version.planned.topology == Blueprint.load(job).topology:
        return None
    with Conversation(job) as conversation:
        return upgrade(job, version, conversation)


def _rescaled_version(job: Path, numbers: Mapping[str, str]) -> Version:
    """Return the version of a running job whose operators have these numbers of tasks.

    Raises:
        PipelineError: the job is not running, or the pipeline does not permit these numbers.
    """
    before = _of_running(job)
    savepoint_store.check_room(job)
    wanted = {PARALLELISM + name: number for name, number in numbers.items()}
    config = replace(before, settings={**asking_again(before.settings), **wanted})
    archive = Archive.load(job, before.code)
    loaded = versions.kept(archive, config)
    for name in wanted:
        if problem := loaded.pipeline.settings.unread(name):
            raise PipelineError(problem)
    planned = plan(loaded.pipeline, config)
    return _version(job, fixing_partitions(planned, config), planned, archive)


def _roll_back(arguments: argparse.Namespace) -> int:
    job = find_job(arguments.name, arguments.state_dir)
    before = _of_running(job)
    with Conversation(job) as conversation:
        facts = facts_of(conversation)
        name = arguments.savepoint or facts.savepoint
        if not name:
            raise PipelineError(
                f"the job in {job} runs the version that it started with, so `causal rollback` needs the name of a "
                "savepoint; `causal savepoint --list` shows them"
            )
        back = savepoint_store.named(job, name)
        if not reaches(back, before):
            raise PipelineError(
                f"the rows of the job in {job} do not continue from savepoint {name}; begin a new job with it: "
                f"{back.command}"
            )
        saved = JobConfig.load(back.where)
        config = settings.resumed(saved, Path(saved.pipeline), {})
        _check_settings(before, config)
        loaded = versions.of_savepoint(back.where, saved, config, Path(saved.pipeline), None)
        planned, written = plan(loaded.pipeline, config), present(job)
        _check_withdrawable(job, written, back)
        version = _version(job, config, planned, loaded.archive)
        changed = roll_back(job, version, written, back, facts, conversation)
    rows = f"{changed.withdrawn:,} rows written since then are withdrawn"
    print(f"{config.name} is rolled back to savepoint {name}; {rows}; {changed.took}")
    return DONE


def _of_running(job: Path) -> JobConfig:
    """Return the configuration of a running job.

    Raises:
        PipelineError: the job is not running, or is led by another machine.
    """
    if not running(job):
        raise PipelineError(not_running(job))
    check_led_here(job)
    fetch(job, ())  # another supervisor may have led the job before this one
    return JobConfig.load(job)


def _check_withdrawable(job: Path, written: Plan, back: Savepoint) -> None:
    """Refuse a rollback of sinks that cannot withdraw the rows that they have written since the savepoint."""
    newest = newest_manifest(job)
    if newest is not None:
        fetch(job, newest[1].values())
    rows = {} if newest is None else savepoint_store.stood(job, written.topology, newest[1])
    for account, limit in written.return_limits(job).items():
        since = rows.get(account, (0, 0))[0] - back.stood(account)[0]
        if since > 0 and (reason := limit(since)):
            raise PipelineError(
                f"the store of {account} {reason}, and {since:,} were written since savepoint {back.name}; begin "
                f"another job instead: {back.command}"
            )


def _check_settings(before: JobConfig, config: JobConfig) -> None:
    for name in (*OF_AGENT, *OF_SUPERVISOR):
        if getattr(before, name) != getattr(config, name):
            raise PipelineError(
                f"{name} cannot change while the job is running; stop it with `causal savepoint --stop`, and resume it"
            )


def _version(job: Path, config: JobConfig, planned: Plan, archive: Archive, allow_dropped: bool = False) -> Version:
    companions = Blueprint.load(job).companions
    if companions or planned.companions(job):
        _check_companions(job, config, planned)
    constraints: Mapping[str, Constraint] = {name: Constraint(*place) for name, place in planned.places().items()}
    blueprint = Blueprint(planned.topology, companions, constraints=constraints)
    return Version(config, planned, blueprint, archive, allow_dropped)


def _check_companions(job: Path, config: JobConfig, planned: Plan) -> None:
    """Check that the companions of the current version can work for the next one; they are not replaced."""
    if not planned.continues(present(job)):
        raise PipelineError(
            "a source that has its own process (Spark, HTTP, standard input) changes with a stop: causal savepoint "
            "--stop; without one, lines over HTTP or from standard input need the same source in both versions"
        )
    before = JobConfig.load(job)
    for name in OF_COMPANIONS:
        if getattr(before, name) != getattr(config, name):
            raise PipelineError(
                f"{name} cannot change while a source's own process is running; stop the job with `causal savepoint "
                "--stop`, and resume it"
            )
