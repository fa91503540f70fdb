"""The part of `causal run` that follows a running job and reports its end.

The preparation of a job loads most of the product and the user's code. A small job has few other processes, so their
memory would be a large share of its own. Therefore `causal run` executes itself again once the processes of such a job
have been started: the process stays the same, with its children, its lock and its signals, but loads only
this module and its imports. Everything that is needed only in rare cases is imported there.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from causal.errors import CausalError, PipelineError, ReplayDivergence
from causal.process.forks import close, keep_from_children, open_descriptors
from causal.storage.modes import private
from deploy.exit_status import DONE, FAILED, WRONG, say
from deploy.jobs.hints import resume_command
from deploy.launching.local import SIGNALS, LocalDeployment, Outcome, Server, agent, supervisor
from deploy.monitoring.tracing import are_wanted, traces
from deploy.progress.console import Console
from deploy.progress.display import Progress
from deploy.standard_streams import settle
from standby.host.forked import Forked
from standby.host.room import FOLLOWED
from standby.supervision.job_view import JobView


@dataclass(frozen=True, slots=True)
class Followed:
    """The facts that are needed to follow a job.

    Attributes:
        report: the file for the report; empty for none.
        companions: the names of sources that need a separate process before the first record can enter.
        alone: whether the job has no shared store.
        small: whether the template ends once it has started the servers.
        began_s: the monotonic time at which the servers were started; 0 if they have not been started.
    """

    job: str
    name: str
    report: str
    savepoint_on_sigterm: bool
    temporary_status: int
    companions: list[str]
    hosts_expected: int
    small: bool
    alone: bool
    began_s: float = 0.0


def follow(
    followed: Followed,
    servers: Sequence[Server],
    template: Any = None,
    room: Callable[[JobView], str | None] = lambda view: None,
    lock: int | None = None,
) -> int:
    """Run the job until it ends, and report its end; return the exit status.

    Args:
        template: as for `LocalDeployment`.
        room: a function that returns a warning about a view, if there is one.
        lock: the descriptor of the lock on the job directory, if this program may be executed again.
    """
    job = Path(followed.job)
    console = Console(job, sys.stdout.buffer)
    on_terminal = sys.stdout.isatty()
    progress = Progress(sys.stderr, followed.companions, followed.hosts_expected, lambda: on_terminal and console.shown)
    exported = traces(followed.name)
    # This run has opened only the lock so far.
    again = lock is not None and not are_wanted() and _is_replaceable(lock)

    def show(view: JobView, elapsed_s: float) -> None:
        progress.show(view, elapsed_s)
        if line := room(view):
            progress.say(f"warning: {line}")
        exported.show(view)

    def started(began_s: float, interrupted: Callable[[], bool]) -> None:
        if lock is not None and again:
            _replace(replace(followed, began_s=began_s), servers, lock, interrupted)
        console.start()

    deployment = LocalDeployment(
        job,
        show,
        servers,
        template,
        progress.say,
        followed.savepoint_on_sigterm,
        followed.small,
        started,
        followed.alone,
    )
    try:
        outcome = deployment.run(followed.began_s)
    finally:
        console.close()
    progress.close()
    if outcome.view is not None:
        exported.show(outcome.view)
    exported.close()
    status = _conclude(outcome, followed, sys.stderr if console.shown else sys.stdout)
    ended = outcome.view.ended if outcome.view is not None else None
    return status if status != FAILED or (ended is not None and ended.lasting) else followed.temporary_status


_before: tuple[int, set[int], str] = (0, set(), "")
"""The exit handlers, the open descriptors and the handled signals before the user's code was loaded."""


def note_process() -> None:
    """Record what this process has before the user's code is loaded."""
    global _before
    _before = _exits(), open_descriptors(), _handled()


def _is_replaceable(lock: int) -> bool:
    """Return whether the user's code left nothing in this process that it may need until the job ends: a thread, an
    exit handler, a temporary directory, an open file (which may be locked), a socket or a signal handler.
    """
    finalizers: Any = weakref.finalize
    exits, descriptors, handlers = _before
    return (
        threading.active_count() == 1
        and _exits() <= exits
        and not finalizers._registry
        and open_descriptors() <= descriptors | {lock}
        and _handled() == handlers
    )


def _exits() -> int:
    exits: Any = atexit
    return int(exits._ncallbacks())


def _handled() -> str:
    """Return the mask of the signals that have a handler, including those that Python does not know."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((line for line in lines if line.startswith("SigCgt:")), "")


def _replace(followed: Followed, servers: Sequence[Server], lock: int, interrupted: Callable[[], bool]) -> None:
    """Execute this program again to follow the job; return only if that is impossible, or if a signal has arrived."""
    from causal.process.ending import write_files  # imported here because the new program does not need it

    state = asdict(followed) | {"lock": lock, "pids": [server.process.pid for server in servers if server.process]}
    write_files()
    sys.stdout.flush()
    # The signals stay blocked until the new program handles them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    os.set_inheritable(lock, True)
    command = [sys.orig_argv[0], *([] if sys.flags.safe_path else ["-P"]), *sys.orig_argv[1:]]
    try:
        if not interrupted():
            os.execve(sys.executable, command, {**os.environ, FOLLOWED: json.dumps(state)})
    except OSError:
        pass  # the environment has reached its size limit, or memory is short, so this program follows the job
    os.set_inheritable(lock, False)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow_again(state: str) -> int:
    """Follow a job in the program that `causal run` has executed for that; return the exit status.

    Args:
        state: the value of `FOLLOWED`.
    """
    facts = json.loads(state)
    lock = keep_from_children(facts.pop("lock"))
    os.set_inheritable(lock, False)
    servers = [supervisor(), agent()]
    for server, pid in zip(servers, facts.pop("pids"), strict=True):
        server.process, server.started_s = Forked(pid), facts["began_s"]
    followed = Followed(**facts)
    runtime = (Path(followed.job) / "runtime").read_text()
    try:
        with private():
            return follow(followed, servers)
    except CausalError as problem:
        return say(str(problem), WRONG if isinstance(problem, PipelineError) else FAILED)
    finally:
        import shutil  # imported here because only the end needs it

        shutil.rmtree(runtime, ignore_errors=True)
        close(lock)


def _conclude(outcome: Outcome, followed: Followed, out: TextIO) -> int:
    job = Path(followed.job)
    if outcome.view is not None:
        from deploy.progress.report import operators_table, report, summary, write_report  # needed only at the end

        result = report(outcome.view, outcome.wall_s)
        if outcome.status == 0:
            lines = [operators_table(outcome.view), summary(result)]
            if not followed.small:
                from deploy.progress.idleness import advice_on_idleness
                from standby.blueprint import Blueprint

                if advice := advice_on_idleness(outcome.view, Blueprint.load(job).topology):
                    lines.append(f"hint: {advice}")
            if outcome.reason:
                lines.append(f"job {followed.name}: {outcome.reason}; {_continues(job)}")
            _show(lines, out)
        try:
            if followed.report:
                write_report(Path(followed.report), result)
        except PipelineError as problem:  # the end of the job must still be reported
            unwritten = say(str(problem), WRONG)
            return unwritten if outcome.status == 0 else say(f"job {followed.name}: {outcome.reason}", outcome.status)
    if outcome.status == 0 and not outcome.reason and outcome.view is not None and outcome.view.kills_left:
        from deploy.progress.report import kills_missed

        return say(f"job {followed.name}: {kills_missed(outcome.view)}", FAILED)
    if outcome.status == 0:
        return DONE
    reason = outcome.reason if outcome.signal else f"{_explained(outcome.reason, job)}{_way_back(job)}"
    return say(f"job {followed.name}: {reason}", outcome.status)


def _show(lines: Sequence[str], out: TextIO) -> None:
    """Print how a job ended; a failure to print does not change the exit status."""
    try:
        print(*lines, sep="\n", file=out, flush=True)
    except OSError as problem:
        settle(out)
        if not isinstance(problem, BrokenPipeError):
            say(f"the summary of the job cannot be written: {problem.strerror}", DONE)


def _continues(job: Path) -> str:
    """Return how to continue a job that stopped at a savepoint; that of a job on recorded input is kept."""
    from causal.config import JobConfig

    if JobConfig.load(job).input:
        from deploy.savepoints.savepoint_store import keep

        saved = keep(job)
        if saved is not None:
            return f"its state is kept, continue from it with: causal run PIPELINE.py --from {saved.where}"
    return f"resume it with: {resume_command(job)}"


def _way_back(job: Path) -> str:
    """Return a clause with the command that rolls back the upgrade that a failed job began with; empty if this is
    impossible.
    """
    from deploy.savepoints.upgrading import upgrade_of

    try:
        upgrade = upgrade_of(job)
    except CausalError:
        return ""
    if upgrade is None or upgrade.complete:
        return ""
    return f"; revert the upgrade that it started with: {resume_command(job)} --rollback"


def _explained(reason: str, job: Path) -> str:
    """Return the reason for a failure and, if changed code or settings caused it, the command that resumes with the old
    ones.
    """
    if ReplayDivergence.__name__ not in reason:
        return reason
    from causal.config import JobConfig
    from deploy.jobs.resuming import written_before

    if written_before(job, JobConfig.load(job)) is None:
        return reason
    resume = f"{resume_command(job)} --code kept"
    return f"its code or settings were changed; resume with the earlier code and settings: {resume}; {reason}"
