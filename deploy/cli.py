"""The `causal` command: plan, run, agent, probe, init, doctor, hosts, drain, keys, status, logs, kill, state, ui …

Exit status: 0 if the command succeeded, 2 for wrong usage or a wrong pipeline, 1 if the job failed.  For an error, one
line on standard error states the problem and its location; a traceback is never printed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causal.config import DETERMINANT_FLUSH, DURABILITY, GUARANTEES, HIDDEN_NONDETERMINISM, ON_ERROR, JobConfig
from causal.errors import PipelineError, Unavailable
from causal.recording_window import DEFAULT
from causal.runs import after
from deploy import settings
from deploy.command_frame import Parser, carried_out, without_commands
from deploy.exit_status import DONE, FAILED, say
from deploy.hosts import host_commands, succession
from deploy.hosts.succession import Brought
from deploy.installation import version_line
from deploy.jobs import namesakes, resuming, versions
from deploy.jobs.edited import listed
from deploy.jobs.jobdirectory import JobDirectory, check_processes_are_shown, check_room_for_sockets
from deploy.jobs.lookup import ROOT, holds_job
from deploy.kill_command import performer
from deploy.launching.following import Followed, follow, note_process
from deploy.launching.local import agent, executors, supervisor
from deploy.monitoring import exposed as exposing
from deploy.monitoring import placement_plan
from deploy.plan_command import add_pipeline, add_processes, advise, explicit_settings
from deploy.savepoints import stored_savepoints
from deploy.savepoints.rolling_back import Return, check_complete, made_by, roll_back, to_roll_back
from deploy.savepoints.upgrading import (
    begin_from,
    beginning,
    change,
    check_stores,
    first_incarnation,
    present,
)
from deploy.spark import options
from operators.builder.pipeline_settings import asking_again
from operators.engine.counted_partitions import fixing_partitions
from operators.engine.plan import Plan, plan
from operators.sources.lines import standard_input
from standby.blueprint import Blueprint, CompanionCall, Constraint
from standby.host.template import Template

if TYPE_CHECKING:
    from deploy.backtesting.backtest import Backtest

ANSWER_S = 5.0


def main(argv: Sequence[str] | None = None, template: Template | None = None) -> int:
    """Run the command and return its exit status.

    Args:
        template: the template that forks the supervisor and the agent, if there is one; it ends with the command.
    """
    running = (sys.argv[1:] if argv is None else argv)[:1] == ["run"]
    return carried_out(_parser_of_run if running else parser, argv, template)


def _parser_of_run() -> Parser:
    """Return a parser that knows only `run`, which starts without the modules of other commands."""
    parser, commands = without_commands()
    _add_run(commands)
    return parser


def parser() -> Parser:
    """Return the parser of all commands."""
    from deploy import doctor, looking, new_project, recordings_command
    from deploy.bundling import bundle_command
    from deploy.changes import change_commands
    from deploy.diffing import diff_command
    from deploy.explaining import explain_command
    from deploy.jobs.chosen import add_job
    from deploy.kill_command import kill
    from deploy.launching import host_agent
    from deploy.monitoring import probe
    from deploy.plan_command import print_plan
    from deploy.replaying import replay_command
    from deploy.savepoint_command import savepoint

    parser, commands = without_commands()
    parser.add_argument("--version", action="version", version=version_line())

    planning = commands.add_parser("plan", help="print which operators form which tasks")
    planning.add_argument("--json", action="store_true", help="as JSON")
    planning.add_argument(
        "--hosts", dest="roster", metavar="hosts.toml", help="several hosts: also where tasks would be on these"
    )
    planning.add_argument("--sharing-depth", metavar="N|full", help="hops downstream that hold a task's log")
    add_processes(planning)
    add_pipeline(planning)
    planning.set_defaults(act=print_plan)

    _add_run(commands)
    host_agent.add_parser(commands)
    succession.add_parser(commands)
    host_commands.add_parsers(commands)
    probe.add_parser(commands)
    new_project.add_parser(commands)
    doctor.add_parser(commands)

    killing = commands.add_parser("kill", help="SIGKILL the process that runs a task")
    add_job(killing)
    killing.add_argument("task", metavar="TASK")
    killing.set_defaults(act=kill)

    saving = commands.add_parser("savepoint", help="end a job at a point where another pipeline can resume")
    add_job(saving)
    saving.add_argument("--stop", action="store_true", help="the sources stand at the savepoint, and the job ends")
    saving.add_argument(
        "--to",
        metavar="PLACE",
        help="a directory, or the URL of a place in a store, for a copy of the savepoint; without --stop the job "
        "continues",
    )
    saving.add_argument("--list", action="store_true", help="the savepoints that are kept")
    saving.add_argument("--delete", metavar="NAME", help="delete one that is kept")
    saving.add_argument("--json", action="store_true", help="with --list: as JSON")
    saving.set_defaults(act=savepoint)

    change_commands.add_parsers(commands)
    recordings_command.add_parser(commands)
    diff_command.add_parser(commands)
    replay_command.add_parser(commands)
    explain_command.add_parser(commands)
    bundle_command.add_parser(commands)

    looking.add_parsers(commands)
    return parser


_ROLLBACK = "with --resume: return to a kept savepoint; default: that with which the current version began"
_ROLLBACK_ON_EARLIER_CODE = (
    "with --resume: if the file is code that the job ran before, return to the last savepoint of that code instead of "
    "upgrading to it"
)


def _add_run(commands: Any) -> None:
    running = commands.add_parser("run", help="run a pipeline on this machine")
    add_pipeline(running)
    running.add_argument("--guarantee", choices=GUARANTEES, help="default: causal")
    running.add_argument("--sharing-depth", metavar="N|full", help="hops downstream that hold a task's log")
    running.add_argument(
        "--determinant-flush", choices=DETERMINANT_FLUSH, help="determinants also go to files; default: off"
    )
    running.add_argument("--durability", choices=DURABILITY, help="what files must survive; default: process")
    running.add_argument("--checkpoint-interval", type=float, metavar="SECONDS", help="default: 1")
    running.add_argument(
        "--standbys",
        metavar="per-task|hot[:OPERATOR,…]|N",
        help="a standby per task, a hot one, or N for all",
    )
    add_processes(running)
    running.add_argument("--on-error", choices=ON_ERROR, help="what a record does on which user code raises")
    running.add_argument(
        "--hidden-nondeterminism", choices=HIDDEN_NONDETERMINISM, help="time.time() and the like; default: capture"
    )
    exposing.add_options(running)
    running.add_argument(
        "--listen", metavar="tcp://ADDRESS:PORT", help="several hosts: where agents join; needs --store"
    )
    running.add_argument("--hosts", metavar="hosts.toml", help="with --listen: the public keys of the hosts")
    running.add_argument("--key", metavar="supervisor.key", help="with --listen: the supervisor's key")
    running.add_argument("--store", metavar="URL", help="what all hosts share: file:///DIRECTORY or s3://BUCKET/PREFIX")
    options.add_options(running)
    running.add_argument("--state-dir", metavar="DIR", help=f"default: {ROOT}/<pipeline's name>")
    running.add_argument("--kill", action="append", default=[], metavar="TASK@SECONDS", help="inject a failure")
    running.add_argument(
        "--verify-replay", "--check", action="store_true", help="perform every epoch twice and compare (development)"
    )
    _add_recording(running)
    running.add_argument("--report", metavar="FILE.json", help="write figures of the run there")
    running.add_argument(
        "--savepoint-on-sigterm",
        action="store_true",
        help="SIGTERM ends the job at a savepoint: --resume may then have other code",
    )
    running.add_argument(
        "--temporary-status",
        type=int,
        choices=range(3, 126),
        default=FAILED,
        metavar="N",
        help="exit status of a failure that another start may avoid, such as an unavailable store; default: 1",
    )
    running.add_argument("--resume", action="store_true", help="resume the job in the state directory")
    running.add_argument(
        "--code",
        choices=versions.CHOICES,
        help="with --resume, where files have changed: which code the job resumes with",
    )
    running.add_argument("--rollback", nargs="?", const="", metavar="SAVEPOINT", help=_ROLLBACK)
    running.add_argument("--rollback-on-earlier-code", action="store_true", help=_ROLLBACK_ON_EARLIER_CODE)
    _add_beginning(running)
    running.set_defaults(act=_run)


def _add_beginning(running: argparse.ArgumentParser) -> None:
    """Add the options that say with which state a new job begins, and what it reads."""
    running.add_argument(
        "--keep-sinks",
        action="store_true",
        help="with --from: continue in the stores of the job that made the savepoint",
    )
    running.add_argument(
        "--from",
        dest="from_",
        metavar="PLACE",
        help="begin with the savepoint in that directory, or at that URL; with --input, also the name of a savepoint, "
        "or an epoch or a time of the recording",
    )
    running.add_argument(
        "--input", metavar="JOB", help="read what was recorded of that job, as fast as possible, instead of the sources"
    )
    running.add_argument("--to", metavar="EPOCH|TIME", help="with --input: the last epoch that is read")
    running.add_argument(
        "--allow-dropped-state",
        action="store_true",
        help="with --resume or --from: leave behind state of operators that are gone",
    )


def _add_recording(running: argparse.ArgumentParser) -> None:
    running.add_argument(
        "--record",
        nargs="?",
        const=DEFAULT,
        metavar="24h,10GB",
        help="keep what a replay of the last hours needs, within a number of bytes; default: off",
    )


def _run(arguments: argparse.Namespace) -> int:
    note_process()
    explicit = explicit_settings(arguments)
    kills = settings.kills(arguments.kill)
    path = Path(arguments.pipeline).absolute()
    if arguments.from_ is not None and arguments.resume:
        raise PipelineError("--from starts a new job and --resume continues one; use only one of them")
    if arguments.rollback is not None and not arguments.resume:
        raise PipelineError("--rollback returns to an earlier version of a job; add --resume")
    if arguments.keep_sinks and arguments.from_ is None:
        raise PipelineError("--keep-sinks is for a job that starts from a savepoint; add --from")
    if arguments.to is not None and arguments.input is None:
        raise PipelineError("--to ends a job on recorded input; add --input JOB")
    report_path = None if arguments.report is None else settings.report_path(arguments.report)
    with ExitStack() as copied:  # the local copy of a stored savepoint is kept until the job has begun with it
        try:
            recorded = None
            if arguments.input is not None:
                from deploy.backtesting.backtest import backtest  # imported here because few jobs need it

                recorded = copied.enter_context(backtest(arguments))
            else:
                arguments.from_ = copied.enter_context(stored_savepoints.as_directory(arguments.from_))
            return _start(arguments, path, explicit, kills, report_path, copied, recorded)
        except Unavailable as problem:
            return say(str(problem), arguments.temporary_status)


def _start(
    arguments: argparse.Namespace,
    path: Path,
    explicit: Mapping[str, Any],
    kills: tuple[tuple[str, float], ...],
    report_path: Path | None,
    copied: ExitStack,
    recorded: Backtest | None,
) -> int:
    """Begin or resume the job, and follow it until it ends; `copied` is closed once the job has begun."""
    directory, version = _directory(arguments, path, explicit, recorded)
    try:
        if version is None:
            brought = succession.bring(directory)
            if brought is Brought.LED:
                directory.open_runtime()
                config = JobConfig.load(directory.path)
                with exposing.exposed(config.metrics_listen, config.metrics_port, directory.path):
                    return _deploy(directory.path, config, report_path, arguments, directory.lock)
            before = directory.take_over()
            back = _back(arguments, directory.path, before, path, explicit)
            if back is None and directory.finished():
                config = settings.resumed(before, path, explicit, arguments.config)
                code_kept = arguments.code == versions.KEPT
                return say(namesakes.finished(directory.path, before, path, config, code_kept), DONE)
            written = present(directory.path) if back is not None else None
            config, version = _next(arguments, directory, before, path, explicit, back)
        else:
            config = settings.config_of(version.pipeline.name, path, explicit, arguments.config)
            config = config if recorded is None else recorded.read_by(config)
        config, planned = _planned(arguments, config, version)
        blueprint = _blueprint(planned, directory.path, kills)
        host_commands.check(planned, config, arguments)
        version = version.planned(planned)
        config = replace(config, code=version.archive.digest)
        with exposing.exposed(config.metrics_listen, config.metrics_port, directory.path):
            if arguments.resume:
                planned.check_resumed(directory.path, written is not None)
                version.archive.save(directory.path, config.durability == "os")
                if written is not None or not succession.takes_over(brought, before, config, directory.path, blueprint):
                    if not _resume(arguments, directory, config, planned, blueprint, version, written, back):
                        resuming.note(directory.path, before, config)
                    directory.note_resumption()
            else:
                _begin(directory, config, planned, blueprint, version, arguments, recorded)
            copied.close()
            advise(version.pipeline)
            directory.open_runtime()
            config = replace(config, first_incarnation=first_incarnation(directory.path))
            config = options.prepared(config, directory.path)
            config.save(directory.path)
            resuming.sweep(directory.path, config)
            blueprint.save(directory.path)
            host_commands.share(config, version.archive)
            succession.enrol(config, directory.path)
            if config.durability == "os":
                directory.sync()
            _warn(planned, config, directory.path)
            with standard_input.offered() if planned.takes_standard_input else nullcontext():
                return _deploy(directory.path, config, report_path, arguments, directory.lock)
    finally:
        directory.close()


def _planned(arguments: argparse.Namespace, config: JobConfig, version: versions.Version) -> tuple[JobConfig, Plan]:
    """Return the settings and the plan of a job.

    Unless a new job keeps the sinks of a savepoint, its run ID is newer than that of any run that wrote to its sinks.
    """
    planned = plan(version.pipeline, config)
    config = fixing_partitions(planned, config)
    if arguments.keep_sinks:
        config = replace(config, run=JobConfig.load(Path(arguments.from_)).run)
    elif not arguments.resume and (run := after(config.run, planned.newest_run())) != config.run:
        config = replace(config, run=run)
    else:
        return config, planned
    return config, plan(version.pipeline, config)


def _warn(planned: Plan, config: JobConfig, job: Path) -> None:
    """Print which guarantees the job does not have with its placement and settings."""
    for line in placement_plan.warnings(planned, config):
        print(f"causal: warning: {line}", file=sys.stderr)
    for name in planned.without_withdrawal(job):
        print(
            f"causal: sink {name!r} cannot withdraw rows, so the job ends if more tasks fail at the same time "
            f"than --sharing-depth {config.sharing_depth} covers; use --sharing-depth full to prevent this",
            file=sys.stderr,
        )


def _directory(
    arguments: argparse.Namespace, path: Path, explicit: Mapping[str, Any], recorded: Backtest | None
) -> tuple[JobDirectory, versions.Version | None]:
    """Return the locked job directory, which is named after the pipeline by default, and the code of a new job."""
    check_processes_are_shown()
    check_room_for_sockets()
    if not arguments.resume:
        if arguments.code is not None:
            raise PipelineError("--code selects the code that a job resumes with; add --resume")
        fixed = {} if recorded is None else recorded.partitions
        version = versions.first(path, {**fixed, **explicit.get("settings", {})})
        settings.check_read(explicit, version.pipeline.settings, arguments)
        job = Path(arguments.state_dir) if arguments.state_dir else ROOT / version.pipeline.name
        if recorded is not None:
            recorded.check_apart(job)
        return JobDirectory(job), version
    job = versions.job_of(path, arguments.state_dir, explicit.get("settings", {}))
    if not holds_job(job) and not os.path.isdir(job):
        raise PipelineError(f"{job} does not contain a job to resume; start one without --resume")
    return JobDirectory(job), None


def _back(
    arguments: argparse.Namespace, job: Path, before: JobConfig, path: Path, explicit: Mapping[str, Any]
) -> Return | None:
    """Return the rollback with which the job resumes; None if it is not rolled back."""
    name = arguments.rollback
    if name is None and arguments.rollback_on_earlier_code:
        name = made_by(job, path, settings.resumed(before, path, explicit, arguments.config))
    if name is None:
        check_complete(job)
        return None
    return to_roll_back(job, name)


def _next(
    arguments: argparse.Namespace,
    directory: JobDirectory,
    before: JobConfig,
    path: Path,
    explicit: Mapping[str, Any],
    back: Return | None,
) -> tuple[JobConfig, versions.Version]:
    """Return the settings and code with which the job in `directory` resumes: unchanged, upgraded or rolled back."""
    if back is not None:
        where = back.savepoint.where
        saved = JobConfig.load(where)
        config = settings.resumed(saved, path, explicit, arguments.config)
        version = versions.of_savepoint(where, saved, config, path, arguments.code)
    else:
        stopped = directory.stopped() and arguments.code != versions.KEPT
        begun = replace(before, settings=asking_again(before.settings)) if stopped else before
        config = settings.resumed(begun, path, explicit, arguments.config)
        written = resuming.written(directory.path, before)
        if arguments.code == versions.KEPT:
            config = resuming.kept(written, config, explicit)
        version = versions.next_of(directory, before, config, path, arguments.code)
        if version.changed:
            versions.check_name(directory.path, before, path, version)
        if arguments.code != versions.NEW and not directory.stopped():
            resuming.check(written, config, version.pipeline.settings)
    settings.check_read(explicit, version.pipeline.settings, arguments)
    return config, version


def _resume(
    arguments: argparse.Namespace,
    directory: JobDirectory,
    config: JobConfig,
    planned: Plan,
    blueprint: Blueprint,
    version: versions.Version,
    written: Plan | None,
    back: Return | None,
) -> bool:
    """Roll back or upgrade the job, or check its stores if it is unchanged; return whether it begins at a savepoint."""
    if written is not None and back is not None:
        rows = roll_back(directory, config, planned, blueprint, written, back, arguments.allow_dropped_state)
        versions.warn(f"rolled back to savepoint {back.savepoint.name}; {rows:,} rows written since then are withdrawn")
        return True
    upgraded = change(directory, config, planned, blueprint, arguments.allow_dropped_state, bool(version.changed))
    if upgraded:
        what = f"{listed(version.changed)} changed" if version.changed else "settings or plan changed"
        versions.warn(f"{what}: this is an upgrade; --resume --rollback reverts it")
    else:
        check_stores(directory, config, planned)
    return upgraded


def _begin(
    directory: JobDirectory,
    config: JobConfig,
    planned: Plan,
    blueprint: Blueprint,
    version: versions.Version,
    arguments: argparse.Namespace,
    recorded: Backtest | None,
) -> None:
    """Empty the directory for a new job, but only after all checks, because an old job may still be resumed or
    queried.
    """
    begins = None
    if recorded is not None:
        begins = recorded.beginning(directory.path, config, planned, arguments.allow_dropped_state)
    elif arguments.from_ is not None:
        where = Path(arguments.from_).absolute()
        begins = beginning(where, directory.path, config, planned, arguments.allow_dropped_state, arguments.keep_sinks)
    planned.check(directory.path)
    try:
        succession.refuse_if_led(config, directory.path)
    except Unavailable as problem:
        raise PipelineError(host_commands.unreachable(problem)) from None
    begun = directory.begun()
    if directory.resumable():
        namesakes.check_unfinished(directory.path, Path(arguments.pipeline).absolute())
    if not arguments.keep_sinks:
        try:
            planned.check_stores(directory.path, config.run)
        except PipelineError as problem:
            if begins is not None or recorded is not None:
                raise
            # The exit status must be the same as if the running job had ended for this reason.
            raise Unavailable(f"job {config.name}: {problem}") from None
        except Unavailable:
            if begun:
                raise  # state must not be discarded for a job that may be refused; only a new job waits for its store
    directory.clear()
    version.archive.save(directory.path, config.durability == "os")
    if recorded is not None:
        recorded.put(directory.path, planned)
    if begins is not None:
        begin_from(directory, begins, config, planned, blueprint)
        directory.note_resumption()


def _blueprint(planned: Plan, job: Path, kills: tuple[tuple[str, float], ...]) -> Blueprint:
    topology = planned.topology
    kills = tuple((performer(topology, name, f"--kill {name}").name, at_s) for name, at_s in kills)
    companions = [CompanionCall(c.name, tuple(c.argv), dict(c.environment)) for c in planned.companions(job)]
    constraints = {name: Constraint(*place) for name, place in planned.places().items()}
    return Blueprint(topology, tuple(companions), kills, constraints=constraints)


def _deploy(job: Path, config: JobConfig, report_path: Path | None, arguments: argparse.Namespace, lock: int) -> int:
    companions = [companion.name for companion in Blueprint.load(job).companions]
    followed = Followed(
        job=str(job),
        name=config.name,
        report="" if report_path is None else str(report_path),
        savepoint_on_sigterm=arguments.savepoint_on_sigterm,
        temporary_status=arguments.temporary_status,
        companions=companions,
        hosts_expected=config.hosts_expected,
        alone=not config.store,
        small=bool(Blueprint.load(job).topology.cells),
    )
    servers = [supervisor()]
    if config.on:
        servers.append(executors())
    elif not config.listen:
        servers.append(agent())
    room = placement_plan.room_watch(job, config)
    # Only the `causal` command itself has a template, and so may be executed again.
    again = followed.small and arguments.template is not None and not config.on and not config.listen
    return follow(followed, servers, arguments.template, room.line, lock if again else None)
