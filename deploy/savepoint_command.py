"""`causal savepoint`: creates, copies, lists or deletes a job's savepoints.

A savepoint is a checkpoint from which another version can start; with --stop, the running job ends at it.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from causal.commands import Files
from causal.config import JobConfig
from causal.errors import CorruptData, PipelineError, Unavailable
from deploy.hosts.succession import fetch_decisions, read_decisions
from deploy.jobs.chosen import chosen_job
from deploy.jobs.hints import check_led_here, not_running, resume_command
from deploy.jobs.jobdirectory import JobDirectory
from deploy.jobs.latest_view import latest
from deploy.jobs.lookup import running
from deploy.savepoints import savepoint_list, savepoint_store, stored_savepoints
from deploy.savepoints.rolling_back import check_complete
from deploy.savepoints.stored_checkpoints import fetch
from deploy.savepoints.upgrading import upgrade_in
from standby.blueprint import Blueprint
from standby.exit_status import STOPPED
from standby.network.control import ask
from standby.storage.manifest_files import DIRECTORY, newest_manifest

ANSWER_S = 5.0
LOOK_S = 0.1


def savepoint(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status.

    Raises:
        PipelineError: there is no such job or savepoint, or the job is not running.
        Unavailable: the job ended before it reached the savepoint.
    """
    job = chosen_job(arguments)
    if arguments.list or arguments.delete is not None:
        return _kept(job, arguments)
    if not arguments.stop and arguments.to is None:
        raise PipelineError(
            "causal savepoint needs an option: --stop ends the job there, --to DIR copies the savepoint"
        )
    sockets, to = str(_sockets(job)), arguments.to
    if to is not None:
        (stored_savepoints.check_room if stored_savepoints.is_url(to) else _check_empty)(to)
    answer = ask(sockets, "savepoint", {"final": arguments.stop}, ANSWER_S)
    if answer is None and _over(job, ANSWER_S):
        raise Unavailable(f"the job in {job} ended before its savepoint: {_ended(job) or 'it has finished'}")
    if answer is None:
        raise Unavailable(f"the supervisor of the job in {job} does not answer; see {job}/logs/supervisor.log")
    if not answer.get("ok"):
        raise Unavailable(str(answer.get("error")))
    if not arguments.stop and to is not None:
        if stored_savepoints.is_url(to):
            with tempfile.TemporaryDirectory(prefix="causal-savepoint-") as directory:
                epoch = _copied(job, Path(directory), int(answer["epoch"]))
                stored_savepoints.put(Path(directory), to)
        else:
            epoch = _copied(job, Path(to), int(answer["epoch"]))
        print(f"savepoint {epoch} is in {to}; start from it with: causal run PIPELINE.py --from {to}")
        return 0
    reason = _ended(job)
    if not reason.startswith(STOPPED):
        raise Unavailable(f"the job in {job} ended before its savepoint: {reason or 'it has finished'}")
    saved = _keep(job)
    print(f"{reason}, which is kept as {saved.name}; resume it with: {resume_command(job)}")
    if to is not None:
        if stored_savepoints.is_url(to):
            try:
                stored_savepoints.put(saved.where, to)
            except (Unavailable, CorruptData) as problem:
                raise Unavailable(f"{problem}; {to} has no copy; start from {saved.where} instead") from None
        else:
            shutil.copytree(saved.where, to, dirs_exist_ok=True)
        print(f"a copy is in {to}; start from it with: causal run PIPELINE.py --from {to}")
    return 0


def _keep(job: Path) -> savepoint_store.Savepoint:
    """Store the savepoint at which the job has just stopped, so that it is kept."""
    directory = JobDirectory(job)
    try:
        fetch_decisions(job)
        saved = savepoint_store.keep(job)
    finally:
        directory.close()
    if saved is None:
        raise Unavailable(f"the job in {job} has been resumed since its savepoint")
    return saved


def _kept(job: Path, arguments: argparse.Namespace) -> int:
    """List the stored savepoints, or delete one."""
    needed = _needed(job)
    if arguments.list:
        listed = savepoint_list.entries(job, needed)
        if arguments.json:
            print(savepoint_list.as_json(listed))
        elif not listed:
            print("no savepoints are kept; `causal savepoint --stop` creates one")
        for entry in listed if not arguments.json else ():
            print(*savepoint_list.shown(entry), sep="\n")
        return 0
    chosen = savepoint_store.named(job, arguments.delete)
    check_complete(job)
    if needed == chosen.name:
        raise PipelineError(
            f"savepoint {chosen.name} is the one to which --rollback returns; it can be deleted once the job has been "
            "upgraded again or has finished"
        )
    savepoint_store.delete(job, chosen)
    print(f"savepoint {chosen.name} is deleted")
    return 0


def _needed(job: Path) -> str | None:
    """Return the name of the savepoint to which `--rollback` returns by default; None if there is none.

    It is not known while the job is running.
    """
    if running(job):  # the running supervisor uses the journal
        return None
    upgrade = upgrade_in(read_decisions(job))
    return upgrade.savepoint if upgrade is not None and not upgrade.finished else None


def _check_empty(directory: str) -> None:
    to = Path(directory)
    try:
        to.mkdir(parents=True, exist_ok=True)
        if any(to.iterdir()):
            raise PipelineError(f"{to} is not empty; use another directory for the savepoint")
    except OSError as problem:
        raise PipelineError(f"--to {to} cannot be used: {problem.strerror}") from None


def _copied(job: Path, to: Path, epoch: int) -> int:
    """Copy the checkpoint of `epoch` or a later one, with all that a job needs to begin from it; return the epoch
    copied.
    """
    while True:
        still = running(job)
        newest = newest_manifest(job)
        if newest is not None and newest[0] >= epoch and _copy(job, to, *newest):
            return newest[0]
        if not still:
            raise Unavailable(f"the job in {job} ended before its savepoint")
        time.sleep(LOOK_S)


def _copy(job: Path, to: Path, epoch: int, files: Mapping[str, Files]) -> bool:
    """Copy a checkpoint durably, with its manifest last; return False if its files were removed in the meantime."""
    try:
        fetch(job, files.values())
        stood = savepoint_store.stood(job, Blueprint.load(job).topology, files)
        view = latest(job)
        if view is None:
            return False
        incarnation = 1 + max(task.incarnation for task in view.tasks)
        name = f"{epoch}-{JobConfig.load(job).run[-6:]}"
        savepoint_store.copy_state(
            job, savepoint_store.Savepoint(name, to, epoch, incarnation, stood, time.time()), files, linked=False
        )
    except (FileNotFoundError, CorruptData):
        shutil.rmtree(to / DIRECTORY, ignore_errors=True)
        return False
    return True


def _sockets(job: Path) -> Path:
    if not running(job):
        raise PipelineError(not_running(job))
    check_led_here(job)
    return Path((job / "runtime").read_text().strip())


def _over(job: Path, within_s: float) -> bool:
    """Wait until `causal run` has ended, which happens after its supervisor has; return False if that takes too
    long.
    """
    deadline = time.monotonic() + within_s
    while running(job):
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_S)
    return True


def _ended(job: Path) -> str:
    """Wait until every process of the job has ended, and return the reason why the job ended."""
    while not _over(job, ANSWER_S):
        continue
    view = latest(job)
    return "it was interrupted" if view is None or view.ended is None else view.ended.reason
