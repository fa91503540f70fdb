"""`causal kill`: the end of the process that runs a task, to see the job survive it."""

from __future__ import annotations

import argparse

from causal.errors import PipelineError
from causal.topology import Task, Topology
from deploy.exit_status import DONE, FAILED, say
from deploy.jobs.chosen import chosen_job
from deploy.jobs.hints import check_led_here, not_running
from deploy.jobs.lookup import ended, running
from standby.blueprint import Blueprint
from standby.network.control import ask

ANSWER_S = 5.0


def performer(topology: Topology, name: str, where: str) -> Task:
    """Return the task with this name, or the cell that performs the subtask with this name.

    Args:
        where: the beginning of the message of an error.

    Raises:
        PipelineError: there is no such task; the message lists the tasks that run the operator, or else all tasks.
    """
    task = topology.performer(name)
    if task is not None:
        return task
    operator = name.rpartition("/")[0]
    runs = [task.name for task in topology.tasks if operator in task.operators]
    if runs and not any(task.startswith(f"{operator}/") for task in runs):
        raise PipelineError(f"{where}: the task does not exist; {operator!r} runs in {', '.join(runs)}")
    shared = [part.name for task in topology.tasks for part in topology.subtasks_of(task.index) if topology.cells]
    names = ", ".join(dict.fromkeys([*(task.name for task in topology.tasks), *shared]))
    raise PipelineError(f"{where}: the task does not exist; the tasks are {names}")


def kill(arguments: argparse.Namespace) -> int:
    """Perform `causal kill`; return its exit status."""
    job = chosen_job(arguments)
    task = performer(Blueprint.load(job).topology, arguments.task, f"kill {arguments.task}").name
    sockets = job / "runtime"
    if not running(job) or not sockets.exists():
        raise PipelineError(not_running(job))
    check_led_here(job)
    answer = ask(sockets.read_text().strip(), "kill", {"task": task}, ANSWER_S)
    if answer is None and not running(job):
        return say(f"the job in {job} ended before {arguments.task} could be killed", FAILED)
    if answer is None:
        return say(f"the supervisor of the job in {job} does not answer; see {job}/logs/supervisor.log", FAILED)
    if not answer.get("ok"):
        return say(str(answer.get("error")), FAILED)
    what = f"{answer['task']} (slot {answer['slot']}, pid {answer['pid']})"
    if not ended(job, answer["slot"], ANSWER_S):
        return say(f"asked to kill {what}; whether it has ended is unknown because its agent is silent", FAILED)
    print(f"killed {what}")
    return DONE
