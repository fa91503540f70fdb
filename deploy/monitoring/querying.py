"""`causal state JOB OPERATOR [KEY]`: shows an operator's keys, or its state for one key, at a checkpoint or now.

The command only reads.  A complete checkpoint shows all tasks at the same barrier, whether the job is running or has
ended.  With --live, the task is asked between two of its events.

The code of the pipeline, and most of the product, is loaded only for state that cannot be read without it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from causal.config import JobConfig
from causal.errors import CorruptData, PipelineError, Unavailable
from causal.snapshot_files import SnapshotFile
from causal.topology import Task
from deploy.jobs.chosen import chosen_job
from deploy.jobs.lookup import names_job, running
from deploy.savepoints.stored_checkpoints import fetch
from operators.queries.key_spelling import key_of, text_of_key
from operators.queries.stored_state import NeedsCode, StoredState, by_table
from operators.records.keys import key_group, task_of_group
from operators.sinks.contract.sink import encode_json
from standby.blueprint import Blueprint
from standby.storage.manifest_files import newest_manifest

if TYPE_CHECKING:
    from operators.builder.pipeline import Pipeline
    from operators.engine.plan import Plan

T = TypeVar("T")

WITHIN_S = 10.0
"""The time for which the command waits for a task that is recovering."""
ANSWER_S = 2.0
AGAIN_S = 0.2
KEYS_MAX = 200
"""The largest number of keys that are listed; `--prefix` can be used to narrow down a longer list."""
TRIES_MAX = 10
"""The number of checkpoints that may be superseded while their files are read."""


def state(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status.

    Raises:
        PipelineError: there is no such job or operator, or the key or an option cannot be used.
        Unavailable: no checkpoint is complete yet, or the task does not answer.
    """
    _without_job(arguments)
    job = chosen_job(arguments)
    config = JobConfig.load(job)
    operator: str = arguments.operator
    if arguments.at is not None:
        if arguments.live:
            raise PipelineError(
                "--live shows the state now and --at that of an earlier checkpoint; use only one of them"
            )
        return _past(job, arguments)
    if arguments.key is None:
        if arguments.live:
            raise PipelineError(
                "--live asks for one key; add a key, or leave out --live to list the last checkpoint's keys"
            )
        listed = _listed(job, config, operator, arguments.prefix)
        print(encode_json(listed) if arguments.json else _keys_shown(listed))
        return 0
    _check_alone(arguments.prefix)
    key = key_of(arguments.key)
    reading = _Reading(job, config, operator, arguments.live)
    answers = reading.kept_for(key)
    if arguments.json:
        print(encode_json({"operator": arguments.operator, "key": key, "live": arguments.live, "tasks": answers}))
    else:
        _show(answers, key, below_full=arguments.live and config.sharing_depth < reading.depth)
        if not arguments.live and not running(job) and _finished(job):
            print("the job has finished since, and its events after that checkpoint are not in this state")
    if not _keeps(answers):
        _hint(operator, key, [other for other in _alike(key, reading.keyed) if _keeps(reading.kept_for(other))])
    return 0


def _past(job: Path, arguments: argparse.Namespace) -> int:
    """Show the state at an earlier epoch."""
    from deploy.monitoring.past_state import past_state

    operator, prefix = arguments.operator, arguments.prefix
    with past_state(job, operator, arguments.at) as past:
        if arguments.key is None:
            listed = {**_listing(operator, past.epoch, past.keys(), prefix), "origin": past.origin}
            print(encode_json(listed) if arguments.json else f"{_keys_shown(listed)}\n{past.origin}")
            return 0
        _check_alone(prefix)
        key = key_of(arguments.key)

        def kept_for(key: Any) -> list[dict[str, Any]]:
            return [
                {"task": task, "epoch": past.epoch, "state": _by_table(tables, operator)}
                for task, tables in past.of_key(key)
            ]

        answers = kept_for(key)
        if arguments.json:
            print(
                encode_json({"operator": operator, "key": key, "live": False, "tasks": answers, "origin": past.origin})
            )
        else:
            _show(answers, key, below_full=False)
            print(past.origin)
        if not _keeps(answers):
            _hint(operator, key, [other for other in _alike(key, past.keyed) if _keeps(kept_for(other))])
    return 0


def _check_alone(prefix: str) -> None:
    if prefix:
        raise PipelineError("--prefix lists keys; use either a prefix or a key")


def _hint(operator: str, key: Any, near: list[Any]) -> None:
    """Report that there is no state for a key, and a key that the user may have meant."""
    hint = f"; it has state for the key {encode_json(near[0])}" if near else ""
    print(f"causal: operator {operator!r} has no state for the key {encode_json(key)}{hint}", file=sys.stderr)


def _without_job(arguments: argparse.Namespace) -> None:
    """Interpret two names as operator and key if the first is not a job, or if an option already names the job."""
    job, otherwise = arguments.job, arguments.name is not None or arguments.state_dir is not None
    if job is not None and arguments.key is None and (otherwise or not names_job(job)):
        arguments.job, arguments.operator, arguments.key = None, job, arguments.operator


def _keeps(answers: list[dict[str, Any]]) -> bool:
    """Return whether any of the tasks has state for the key."""
    return any(each["state"] for each in answers)


def _alike(key: Any, keyed: bool) -> list[Any]:
    """Return keys that the user may have meant: a number as text, a text as a number, or null without `key_by`."""
    if not keyed:
        return [] if key is None else [None]
    if type(key) in (int, float):
        return [encode_json(key)]
    try:
        number = json.loads(key) if type(key) is str else None
    except (ValueError, RecursionError):
        return []
    return [number] if type(number) in (int, float) else []


def _finished(job: Path) -> bool:
    from standby.storage.journal import journaled
    from standby.supervision.savepoints import finished

    return finished(journaled(job))


class _Reading:
    """Reads what an operator keeps for keys, without the code of the pipeline as long as it can.

    Attributes:
        keyed: whether the operator follows key_by; known once a key has been read.
    """

    def __init__(self, job: Path, config: JobConfig, operator: str, live: bool) -> None:
        self.keyed = True
        self._job = job
        self._config = config
        self._operator = operator
        self._live = live
        self._version: tuple[Pipeline, Plan] | None = None
        self._topology = Blueprint.load(job).topology

    @property
    def depth(self) -> int:
        """The number of tasks, which is full sharing depth."""
        return len(self._topology.tasks)

    def kept_for(self, key: Any) -> list[dict[str, Any]]:
        """Return what each task that may keep state for a key keeps for it."""
        if self._version is None and not self._live:
            try:
                return self._stored(key)
            except NeedsCode:
                self._version = _loaded(self._job, self._config)
        from operators.queries.inspection import as_of, owners

        self._version = self._version or _loaded(self._job, self._config)
        pipeline, planned = self._version
        job, operator, key_groups = self._job, self._operator, self._config.key_groups
        tasks = owners(pipeline, planned, operator, key, key_groups)
        self.keyed = planned.keyed(operator)
        if self._live:
            return [_asked(job, task, operator, key) for task in tasks]

        def state_of(task: Task, files: Sequence[SnapshotFile]) -> Mapping[str, Any]:
            return as_of(planned, task, files, job, operator, key, key_groups)

        return self._answers(tasks, *_at_checkpoint(job, tasks, state_of))

    def _stored(self, key: Any) -> list[dict[str, Any]]:
        """Return what the files of the tasks say.

        Raises:
            NeedsCode: the state cannot be read without the code of the pipeline.
        """
        operator, key_groups = self._operator, self._config.key_groups
        tasks = [task for task in self._topology.tasks if operator in task.operators]
        if not tasks:
            raise NeedsCode
        owner = task_of_group(key_group(key, key_groups), len(tasks), key_groups)

        def stored(task: Task, files: Sequence[SnapshotFile]) -> Mapping[str, Any] | None:
            state = StoredState(self._job, files, operator, key_groups)
            self.keyed = state.keyed
            return state.get(key) if task is tasks[owner] or not state.keyed else None

        epoch, states = _at_checkpoint(self._job, tasks, stored)
        answers = [(task, state) for task, state in zip(tasks, states, strict=True) if state is not None]
        return self._answers([task for task, _ in answers], epoch, [state for _, state in answers])

    def _answers(self, tasks: Sequence[Task], epoch: int, states: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [
            {"task": task.name, "epoch": epoch, "state": _by_table(state, self._operator)}
            for task, state in zip(tasks, states, strict=True)
        ]


def _loaded(job: Path, config: JobConfig) -> tuple[Pipeline, Plan]:
    """Return the pipeline of a job and its plan, whose code is loaded."""
    from operators.builder.loading import load_of_job
    from operators.engine.plan import plan

    pipeline = load_of_job(job, config)
    return pipeline, plan(pipeline, config)


# State at a checkpoint.


def _at_checkpoint(
    job: Path, tasks: Sequence[Task], read: Callable[[Task, Sequence[SnapshotFile]], T]
) -> tuple[int, list[T]]:
    """Return the epoch of the newest checkpoint, and the result of `read` for each task's files.

    Raises:
        Unavailable: there is no checkpoint, or every checkpoint was superseded while it was read.
    """
    epoch = 0
    for _ in range(TRIES_MAX):
        manifest = newest_manifest(job)
        if manifest is None:
            if not running(job):
                raise Unavailable(
                    f"the job in {job} is not running, and none of its checkpoints was complete when the job ended"
                )
            raise Unavailable(f"no checkpoint of the job in {job} is complete yet; try again, or ask it with --live")
        before, (epoch, files) = epoch, manifest
        try:
            fetch(job, [files.get(task.name, ()) for task in tasks])
            return epoch, [read(task, files.get(task.name, ())) for task in tasks]
        except CorruptData:
            if epoch == before:  # otherwise, a newer checkpoint replaced this one while it was read
                raise
    raise Unavailable(f"checkpoints of the job in {job} follow each other faster than one can be read; use --live")


# Keys.


def _listed(job: Path, config: JobConfig, operator: str, prefix: str) -> dict[str, Any]:
    """Return those keys of an operator at the last checkpoint that begin with the prefix, in the form `key_of`
    parses.
    """
    from operators.queries.inspection import all_tasks, keys_as_of

    pipeline, planned = _loaded(job, config)

    def keys_in(task: Task, files: Sequence[SnapshotFile]) -> tuple[set[Any], bool]:
        return keys_as_of(planned, task, files, job, operator, config.key_groups)

    return _listing(operator, *_at_checkpoint(job, all_tasks(pipeline, planned, operator), keys_in), prefix)


def _listing(operator: str, epoch: int, answers: Sequence[tuple[set[Any], bool]], prefix: str) -> dict[str, Any]:
    texts = {text_of_key(key) for keys, _ in answers for key in keys}
    matching = [text for text in texts if text.startswith((prefix, f'"{prefix}'))]
    return {
        "operator": operator,
        "epoch": epoch,
        "prefix": prefix,
        "count": len(matching),
        "complete": all(complete for _, complete in answers),
        "keys": nsmallest(KEYS_MAX, matching, key=lambda text: (len(text) if _is_number(text) else 0, text)),
    }


def _is_number(text: str) -> bool:
    """Return whether a key is a non-negative whole number; such keys are listed last, ordered by value."""
    return text.isascii() and text.isdecimal()


def _keys_shown(listed: Mapping[str, Any]) -> str:
    count = f"{listed['count']:,}{'' if listed['complete'] else ' or more'}"
    begin = f" that begin with {listed['prefix']}" if listed["prefix"] else ""
    lines = [
        f"{listed['operator']}, as of checkpoint {listed['epoch']}: {count} key{'s' * (count != '1')}{begin}",
        *listed["keys"],
    ]
    if listed["count"] > len(listed["keys"]):
        lines.append(f"and {listed['count'] - len(listed['keys']):,} more: select some with --prefix")
    if not listed["complete"]:
        lines.append("the state is large: only some of its key groups were searched")
    return "\n".join(lines)


# Live state.


def _asked(job: Path, task: Task, operator: str, key: Any) -> dict[str, Any]:
    from standby.network.control import ask

    deadline, why = time.monotonic() + WITHIN_S, ""
    while time.monotonic() < deadline:
        if not running(job):
            raise PipelineError(f"the job in {job} is not running; ask without --live to see its last checkpoint")
        sockets = (job / "runtime").read_text().strip()
        reply = ask(sockets, "inspect", {"task": task.name, "operator": operator, "key": key}, ANSWER_S)
        if reply is not None and "tables" in reply:
            return {
                "task": task.name,
                "epoch": reply["epoch"],
                "incarnation": reply["incarnation"],
                "state": _by_table(reply["tables"], operator),
            }
        why = "no answer" if reply is None else str(reply.get("error") or f"{task.name} is {reply.get('state')}")
        if reply is not None and "without --live" in why:
            break
        time.sleep(AGAIN_S)
    raise Unavailable(f"{task.name} cannot be asked: {why}")


def _by_table(tables: Mapping[str, Any], operator: str) -> dict[str, Any]:
    """Return the state by table, without the operator's name in the table names, as values of JSON."""
    return {name: _plain(value) for name, value in by_table(tables, operator).items()}


def _plain(value: Any) -> Any:
    """Convert a value for JSON, in which the keys of a dict must be strings; other keys are encoded as JSON text."""
    if isinstance(value, Mapping):
        return {key if type(key) is str else encode_json(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def _dated(timers: Mapping[str, float]) -> dict[str, str]:
    """Return wall-clock timers as readable times; event-time timers keep the form that records use."""
    return {name: f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%S.%fZ}" for name, at_s in timers.items()}


def _show(answers: list[dict[str, Any]], key: Any, below_full: bool) -> None:
    for each in answers:
        when = (
            f"in epoch {each['epoch']}, incarnation {each['incarnation']}"
            if "incarnation" in each
            else (f"as of checkpoint {each['epoch']}")
        )
        print(f"{each['task']}, key {encode_json(key)}, {when}")
        width = max(map(len, each["state"]), default=0)
        for table, value in each["state"].items():
            print(f"  {table:<{width}}  {encode_json(_dated(value) if table == 'timers' else value)}")
        if not each["state"]:
            print("  nothing is kept for this key")
    if below_full:
        print("this may still be rolled back: the job's sharing depth is below full")
