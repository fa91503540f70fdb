"""`causal hosts`, `drain` and `keys`, as well as the support that `causal run` needs for a multi-host job."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from causal.config import JobConfig
from causal.errors import PipelineError, Unavailable
from causal.network.curve import new_key
from causal.network.roster import ROSTER, SUPERVISOR, Roster, is_supervisor, load_key, save_key
from causal.storage.shared import Depot
from deploy.jobs.chosen import add_job, chosen_job
from deploy.jobs.hints import candidate_shown, check_led_here, led_by, not_running, resume_command
from deploy.jobs.latest_view import latest, view_age_s
from deploy.jobs.lookup import coming_up, running
from deploy.monitoring.status import headline
from deploy.spark import options
from operators.code_archive.archive import Archive, name_in_store
from operators.engine.plan import Plan
from standby.network.control import ask
from standby.network.gate import address_of, is_loopback
from standby.supervision.job_view import JobView

ANSWER_S = 5.0


def add_parsers(commands: Any) -> None:
    """Add these commands to those of `causal`."""
    showing = commands.add_parser("hosts", help="show the hosts of a job, their tasks and standbys")
    showing.add_argument("--json", action="store_true", help="as JSON")
    add_job(showing)
    showing.set_defaults(act=_hosts)

    draining = commands.add_parser("drain", help="move every task off a host, one promotion at a time")
    add_job(draining)
    draining.add_argument("host", metavar="HOST")
    draining.add_argument("--undo", action="store_true", help="let the host have processes again")
    draining.set_defaults(act=_drain)

    keys = commands.add_parser("keys", help="make keys for the hosts of jobs")
    verbs = keys.add_subparsers(required=True, metavar="VERB", parser_class=type(keys))
    making = verbs.add_parser("new", help=f"write NAME.key and add its public half to {ROSTER}")
    making.add_argument("name", metavar="NAME", help=f"a host; `{SUPERVISOR}` for the supervisor's own")
    making.add_argument("--dir", default=".", metavar="DIR", help="default: here")
    making.set_defaults(act=_new_key)


def _new_key(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.dir)
    path = save_key(folder, new_key(arguments.name))
    print(f"{path} contains the secret key of {arguments.name}; {folder / ROSTER} contains the public key")
    return 0


def settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the complete, checked settings of a multi-host job from the command line; a setting that is not set is
    None.

    Raises:
        PipelineError: a setting is missing or wrong.
    """
    listen, store = getattr(arguments, "listen", None), getattr(arguments, "store", None)
    key, roster = getattr(arguments, "key", None), getattr(arguments, "hosts", None)
    result: dict[str, Any] = {"listen": listen, "store": store, "key": None, "hosts": None, "hosts_expected": None}
    on = getattr(arguments, "on", None)
    if on is not None:
        if store is None:
            raise PipelineError("--on needs --store URL: a store that every executor can read (s3://… or file:///…)")
        result.update(options.settings_of(arguments, on))
        listen = result["listen"] = listen or options.default_listen(on)
    elif options.for_executors(arguments):
        raise PipelineError("--agents and --spark-conf are for executors of a Spark cluster; add --on")
    if listen is None:
        for name, value in (("--hosts", roster), ("--key", key)):
            if value is not None:
                raise PipelineError(f"{name} is for a multi-host job; add --listen tcp://ADDRESS:PORT")
        return result
    address, _ = address_of(listen)
    if store is None:
        raise PipelineError("--listen needs --store URL: a store that every host can read (file:///… or s3://…)")
    if (key is None) != (roster is None):
        raise PipelineError("--key and --hosts belong together: the supervisor's key, and the public keys of the hosts")
    if key is None and on is None and not is_loopback(address):
        raise PipelineError(
            f"--listen {listen} can be reached from the network; use --key and --hosts (create keys with "
            "`causal keys new`)"
        )
    if key is not None and roster is not None:
        pair, members = load_key(Path(key)), Roster.load(Path(roster))
        if not is_supervisor(pair.name) or members.name_of(pair.public) != pair.name:
            raise PipelineError(
                f"{key} is not the key of [{SUPERVISOR}] in {roster}; create it with `causal keys new {SUPERVISOR}`"
            )
        if not members.hosts and on is None:
            raise PipelineError(f"{roster} does not name any host; add one with `causal keys new NAME`")
        result.update(key=str(Path(key).absolute()), hosts=str(Path(roster).absolute()))
        result["hosts_expected"] = len(members.hosts)
    return result


def check(planned: Plan, config: JobConfig, arguments: argparse.Namespace) -> None:
    """Refuse a multi-host job that would lose data along with a host, unless the pipeline explicitly accepts this.

    Raises:
        PipelineError: the job is refused; the message is one line with the operator and the remedy.
    """
    if not config.listen:
        return
    places = planned.places()
    for task, reason in planned.bound():
        if not places.get(task, ("", {}))[0]:
            operator = task.rpartition("/")[0]
            raise PipelineError(
                f"{task}: {reason}, so the task cannot move to another host; keep it on one host with "
                f'pipeline.place({operator!r}, host="NAME"), or use PostgresSink, RedisSink, or JsonLinesSink or '
                "ParquetSink with the URL of a store (s3://BUCKET/PREFIX)"
            )
    names = {member.name for member in Roster.load(Path(config.hosts)).hosts} if config.hosts else set()
    for task, (host, _) in places.items():
        if host and config.on and host not in names:
            raise PipelineError(
                f"{task} is placed on {host}, but executors come and go; use --hosts with a host of that name"
            )
        if host and config.hosts and host not in names:
            raise PipelineError(f"{task} is placed on {host}, which is not in {config.hosts}")
    _check_port(config.listen)


def _check_port(listen: str) -> None:
    """Refuse an address that cannot be bound; this happens before any state of an earlier job is discarded."""
    address, port = address_of(listen)
    try:
        socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET).close()
    except OSError as problem:
        reason = os.strerror(problem.errno) if problem.errno and problem.errno > 0 else str(problem)
        raise PipelineError(f"--listen {listen} cannot be bound: {reason}; use another address or port") from None


def share(config: JobConfig, archive: Archive) -> None:
    """Upload to the shared store everything that hosts need before they can load the job.

    Raises:
        PipelineError: the store cannot be used.
    """
    if not config.store:
        return
    depot = Depot(config.store, config.place_in_store)
    try:
        depot.create_own(name_in_store(config.code), archive.packed())
    except Unavailable as problem:
        raise PipelineError(unreachable(problem)) from None


def unreachable(problem: Unavailable) -> str:
    """Return a message about a shared store that does not answer, including the remedy."""
    return f"{problem}; check the URL and the credentials"


def _hosts(arguments: argparse.Namespace) -> int:
    job = chosen_job(arguments)
    alive = running(job)  # this precedes reading the view, so that a job that has just ended is shown as ended
    view = None if alive and coming_up(job) else latest(job)
    if view is None:
        raise PipelineError(f"the job in {job} has not come up yet; try again in a moment")
    if arguments.json:
        answer = {
            "hosts": view.hosts,
            "losses": view.host_losses,
            "alive": alive,
            "leader": view.leader,
            "candidates": view.candidates or (),
        }
        print(json.dumps(to_builtins(answer), indent=1))
        return 0
    if not JobConfig.load(job).listen:
        print(f"{view.job} runs only on this machine; run it on several hosts with `causal run --listen`")
        return 0
    present = alive and not view.ended
    if not present:
        print(f"{view.job}: {headline(view, alive, resume_command(job))} (as of {view_age_s(job):.1f} s ago)")
    print("\n".join(shown(view, present)))
    return 0


def shown(view: JobView, present: bool = True) -> Iterator[str]:
    """Yield the lines to print; for a job that is no longer led, they describe its last known state."""
    width = max((len(host.host) for host in view.hosts), default=4)
    for host in view.hosts:
        silent_ms = host.last_heard_ms if present else None
        heard = "" if silent_ms is None else f", heard {silent_ms / 1000:.1f} s ago"
        zone = f", zone {host.zone}" if host.zone else ""
        tasks = ", ".join(host.tasks) or "none"
        standbys = ", ".join(host.standbys) or "none"
        clock = "" if host.clock_error_ms is None else f", clock known to {host.clock_error_ms:.2f} ms"
        version = f", version {host.version}" if host.version else ""
        facts = f"incarnation {host.incarnation}{zone}{version}{heard}{clock}"
        state = host.state if present else f"was {host.state}"
        yield f"{host.host:<{width}}  {state} ({facts})"
        yield f"{'':<{width}}  tasks: {tasks}; standbys of: {standbys}; {host.slots} slots"
    if not view.hosts:
        yield "no host has joined yet"
    if present and view.leader:
        yield f"led by {led_by(view.leader)}"
    for each in view.candidates or () if present else ():
        deaf = "" if each.hears else ", hears no host"
        yield f"candidate: {candidate_shown(each)}, heard {each.heard_ms / 1000:.0f} s ago{deaf}"
    for loss in view.host_losses[-5:]:
        live = "not all live again" if loss.recovered_ms is None else f"live again after {loss.recovered_ms:.0f} ms"
        tasks = f"{len(loss.tasks)} task{'s' * (len(loss.tasks) != 1)}"
        yield f"lost {loss.host}: {loss.why}; {tasks} {live}"
    for title, names in (
        ("without a process", view.without_process),
        ("without a standby", view.without_standby),
    ):
        if names and present:
            yield f"{title}: {', '.join(names)}"


def _drain(arguments: argparse.Namespace) -> int:
    job = chosen_job(arguments)
    sockets = job / "runtime"
    if not running(job) or not sockets.exists():
        raise PipelineError(not_running(job))
    check_led_here(job)
    request = {"host": arguments.host, "draining": not arguments.undo}
    answer = ask(sockets.read_text().strip(), "drain", request, ANSWER_S)
    if answer is None:
        raise Unavailable(f"the supervisor of the job in {job} does not answer; see {job}/logs/supervisor.log")
    if not answer.get("ok"):
        raise PipelineError(str(answer.get("error")))
    if arguments.undo:
        print(f"{arguments.host} may run processes again")
    else:
        left = answer["tasks"]
        what = f"tasks that move off it: {', '.join(left)}" if left else "no task is on it"
        print(f"{arguments.host} drains; {what}", file=sys.stdout)
    return 0
