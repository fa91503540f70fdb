"""`causal agent`: makes this machine one host of a job whose supervisor is elsewhere.

The command asks the supervisor for the job's description, creates a directory for the host from it, and keeps an agent
running there.  The directory belongs only to this execution of the command; state that must outlive the host is in the
shared store.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.errors import CorruptData, PeerViolation, PipelineError, Unavailable
from causal.network.host_file import KEY, HostFile, read_term, save_roster, save_sign
from causal.network.roster import ROSTER, KeyPair, Roster, load_key
from causal.network.seats import Seat, joined, seats_of
from causal.storage.shared import Depot, insist
from deploy.installation import installed
from deploy.jobs.jobdirectory import JobDirectory
from deploy.jobs.lookup import ROOT
from deploy.launching.local import LocalDeployment, agent
from deploy.printable import printable
from operators.code_archive.archive import Archive, minor, name_in_store, other_versions
from operators.code_archive.reach import versions_now
from standby.agent import STATUS_AGAIN, STATUS_DONE, STATUS_LEFT, STATUS_WRONG
from standby.network.description import Description, Inquiry
from standby.network.gate import address_of, is_loopback
from standby.network.tether import tether

TETHER_S = 1.0
"""The time that a tether has to connect, and the time until the next attempt."""

SLOTS_PER_CORE = 4
"""The number of processes per core for which a host offers room, unless it is configured."""

DRAIN_S, DRAIN_S_MAX = 20.0, 86_400.0
"""The time that the tasks of a host that is asked to end have to move: the default and the maximum."""

CLOCK_S_MAX, CLOCK_S_NOTED = 60.0, 2.0
"""Differences between a host's wall clock and the supervisor's: the smallest that is refused, and the smallest that
is reported.  They matter because the times of one job's records come from the clocks of all hosts."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_log = logging.getLogger("deploy.launching.host_agent")


def add_parser(commands: Any) -> None:
    """Add this command to those of `causal`."""
    joining = commands.add_parser("agent", help="make this machine a host of a job whose supervisor is elsewhere")
    joining.add_argument(
        "--join",
        required=True,
        action="append",
        metavar="tcp://ADDRESS:PORT",
        help="where the supervisor listens; repeatable for its successors, those that hosts.toml does not name",
    )
    joining.add_argument("--key", metavar="NAME.key", help="this host's key; hosts.toml is in the same directory")
    joining.add_argument("--name", help="without a key, on loopback only: the host's name; default: this machine's")
    joining.add_argument("--state-dir", metavar="DIR", help=f"default: {ROOT}/hosts/<name>")
    joining.add_argument("--address", help="the address at which other hosts reach this one; default: as routed")
    joining.add_argument(
        "--slots", type=int, metavar="N", help=f"room for processes; default: {SLOTS_PER_CORE} per core"
    )
    joining.add_argument("--zone", help="hosts of one zone may fail together")
    joining.add_argument("--machine", help="two hosts of one machine fail together; default: this machine's name")
    joining.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="for tasks that ask for it")
    joining.add_argument(
        "--drain-timeout", type=float, default=DRAIN_S, metavar="SECONDS",
        help="how long its tasks may take to move to other hosts when it gets SIGTERM or Ctrl-C; default: "
        f"{DRAIN_S:.0f}",
    )  # fmt: skip
    joining.add_argument(
        "--no-break", action="store_true", help="the dashboard of the job cannot kill the agent of this host"
    )
    joining.set_defaults(act=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command until the job has ended; return its exit status.

    Raises:
        PipelineError: the host cannot take part, for a reason that would recur at another attempt.
    """
    key, roster = _identity(arguments)
    seats = seats_of(joined(arguments.join), roster)
    _check_addresses(seats, key, arguments.address)
    name = key.name if key is not None else _plain_name(arguments)
    labels = dict(_label(each) for each in arguments.label)
    if arguments.slots is not None and arguments.slots < 1:
        raise PipelineError(f"--slots {arguments.slots}: use a number from 1")
    if not 0 <= arguments.drain_timeout <= DRAIN_S_MAX:
        raise PipelineError(f"--drain-timeout {arguments.drain_timeout}: use 0 to {DRAIN_S_MAX} seconds")
    directory = JobDirectory(Path(arguments.state_dir) if arguments.state_dir else ROOT / "hosts" / name)
    inquiry = Inquiry(seats, name, key)
    try:
        while True:
            description = inquiry.answer(say, partial(_waits, directory.path))
            check_clock(name, description.wall_ahead_s)
            host = HostFile(
                host=name,
                join=joined(arguments.join),
                address=arguments.address or own_address(description.address),
                session=secrets.token_hex(8),
                slots=description.member.get("slots") or arguments.slots or SLOTS_PER_CORE * (os.cpu_count() or 1),
                zone=description.member.get("zone") or arguments.zone or "",
                machine=arguments.machine or socket.gethostname(),
                labels={**labels, **(description.member.get("labels") or {})},
                version=installed(),
                drain_s=arguments.drain_timeout,
                breakable=not arguments.no_break,
            )
            status = _serve(directory, host, description, inquiry, arguments)
            if status != STATUS_AGAIN:
                return status
            say(f"{name}: the job has stopped; waiting for it to be resumed")
    finally:
        directory.close()


def _identity(arguments: argparse.Namespace) -> tuple[KeyPair | None, Roster]:
    if arguments.key is None:
        return None, Roster({})
    path = Path(arguments.key).parent / ROSTER
    roster = Roster.load(path)
    if not roster.supervisors:
        raise PipelineError(f"{path} lacks the supervisor's public key; copy hosts.toml from the supervisor's machine")
    return load_key(Path(arguments.key)), roster


def _check_addresses(seats: Sequence[Seat], key: KeyPair | None, own: str | None) -> None:
    """Refuse values that are not addresses.  For a host without a key, also refuse network addresses, because its
    sockets are unencrypted.
    """
    named = [(f"--join {seat.endpoint}", address_of(seat.endpoint)[0]) for seat in seats]
    for option, address in [*named, (f"--address {own}", own or "localhost")]:
        if key is None and not is_loopback(address):
            raise PipelineError(
                f"{option} is a network address; use --key NAME.key (create it with `causal keys new NAME`)"
            )


def _plain_name(arguments: argparse.Namespace) -> str:
    name: str = arguments.name or re.sub(r"[^a-z0-9-]", "-", socket.gethostname().lower())[:63].strip("-")
    if not _NAME.fullmatch(name):
        raise PipelineError(
            f"--name {name!r:.80} is not a valid host name; use at most 63 lowercase letters, digits and '-'"
        )
    return name


def _label(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise PipelineError(f"--label {text!r:.80}: use NAME=VALUE")
    return name, value


def own_address(supervisor: str) -> str:
    """Return this machine's address on the route to the supervisor, from the routing table and without sending
    anything.
    """
    with socket.socket(socket.AF_INET6 if ":" in supervisor else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((supervisor, 9))
        except OSError as problem:
            raise PipelineError(f"{supervisor} cannot be reached: {problem.strerror}; use --address") from None
        return str(probe.getsockname()[0])


def _waits(directory: Path) -> bool:
    """Renew the sign of life of a host that is waiting for a supervisor; return True."""
    save_sign(directory, joined=False)
    return True


def check_clock(name: str, ahead_s: float) -> None:
    """Refuse a host whose wall clock is far off; report a smaller difference that would be visible in processing
    time.
    """
    if abs(ahead_s) < CLOCK_S_NOTED:
        return
    line = f"{name}: its clock is {abs(ahead_s):,.1f} s {'ahead of' if ahead_s > 0 else 'behind'} the supervisor's"
    if abs(ahead_s) >= CLOCK_S_MAX:
        raise PipelineError(f"{line}; set the clock (NTP), then start `causal agent` again")
    say(f"{line}: code that reads the time of day sees a jump when a task moves")


def _serve(
    directory: JobDirectory, host: HostFile, description: Description, inquiry: Inquiry, arguments: argparse.Namespace
) -> int:
    """Take part in one run of the job; return the status with which the host's part in it ended."""
    directory.clear()
    path = directory.path
    directory.open_runtime()
    (path / "job.json").write_text(description.job)
    (path / "topology.json").write_text(description.graph)
    host.save(path)
    if arguments.key is not None:
        shutil.copyfile(arguments.key, path / KEY)
        (path / KEY).chmod(0o600)
        save_roster(path, description.roster)
    config = JobConfig.load(path)
    archive = fetch_code(path, config)
    if archive is not None:
        check_versions(host.host, archive)
    keeper = TetherKeeper(path, host, description, inquiry)
    keeper.start()
    say(f"{host.host}: host of job {config.name}, {host.slots} slots, at {host.address}")
    server = agent((STATUS_DONE, STATUS_AGAIN, STATUS_WRONG, STATUS_LEFT), host.drain_s)
    deployment = LocalDeployment(path, lambda view, at_s: None, [server], arguments.template)
    try:
        outcome = deployment.run()
    finally:
        keeper.stop()
    if outcome.status == STATUS_WRONG:
        raise PipelineError(f"{host.host}: {last_error(path)}")
    if outcome.status == STATUS_LEFT:
        say(f"{host.host}: its tasks are on other hosts now")
        return STATUS_DONE
    if outcome.status == STATUS_DONE:
        say(f"{host.host}: the job has ended")
    elif outcome.signal:
        say(f"{host.host}: ended by {signal.Signals(outcome.signal).name} with tasks that had not moved")
        return 128 + outcome.signal
    elif outcome.status != STATUS_AGAIN:
        say(f"{host.host}: {outcome.reason}")
    return outcome.status


def last_error(path: Path) -> str:
    """Return the last error in the log of a host's agent; lines about the ends of its processes may follow the
    error.
    """
    lines = (path / "logs" / "agent.log").read_text(errors="replace").splitlines()
    errors = [line for line in lines if " ERROR " in line.partition(": ")[0]] or lines
    return errors[-1].partition(": ")[2] if errors else "the agent ended; see its log"


def fetch_code(path: Path, config: JobConfig) -> Archive | None:
    """Fetch the archive of the job's code from the shared store and return it; None for a job without code.

    If the archive is already on this host, it is used unless it is damaged.

    Raises:
        PipelineError: the store does not contain the archive, or contains a damaged one.
    """
    if not config.code:
        return None
    with suppress(CorruptData):
        return Archive.load(path, config.code)
    depot, outage = Depot(config.store, config.place_in_store), Outage()
    _check_place(depot, config, path, outage)
    name = name_in_store(config.code)
    try:
        body = insist(lambda: depot.read(name), outage.report, partial(_waits, path)) or b""
        return Archive.received(path, config.code, body, depot.where(name))
    except CorruptData as problem:
        raise PipelineError(f"{problem}, or start the job again from its pipeline file") from None


def check_versions(name: str, archive: Archive) -> None:
    """Refuse a host whose Python version differs from the job's, and report other packages with different versions.

    Raises:
        PipelineError: the host's Python has a different minor version, with which the same code may behave differently.
    """
    now = versions_now(archive)
    if minor(archive.python) != minor(now.python):
        raise PipelineError(
            f"{name}: the job's code needs Python {archive.python}, but this host has {now.python}; start "
            f"`causal agent` with Python {minor(archive.python)}"
        )
    for phrase in other_versions(archive, now):
        say(f"{name}: {phrase} here")


def _check_place(depot: Depot, config: JobConfig, path: Path, outage: Outage) -> None:
    """Refuse a store that is not the supervisor's, because the same URL may refer to a different directory on this
    host.
    """
    names = insist(lambda: depot.names("code"), outage.report, partial(_waits, path))
    if not names:
        raise PipelineError(
            f"--store {config.store} has no files of job {config.name} when read from this host; mount the "
            "directory that the supervisor uses at the same path, or use s3://"
        )


class TetherKeeper(threading.Thread):
    """Keeps this host's tether connected, even to a supervisor that has been restarted."""

    def __init__(self, directory: Path, host: HostFile, description: Description, inquiry: Inquiry) -> None:
        super().__init__(name="tether", daemon=True)
        self._directory = directory
        self._host = host
        self._description = description
        self._inquiry = inquiry
        self._ended = threading.Event()
        self._connection: socket.socket | None = None

    def run(self) -> None:
        """Connect, wait until the connection ends, and reconnect."""
        while not self._ended.is_set():
            description = self._description
            try:
                self._connection = tether(
                    description.address,
                    description.tether_port,
                    description.tether_secret,
                    self._host.host,
                    self._host.session,
                    TETHER_S,
                )
                self._connection.settimeout(TETHER_S)
                while self._lasts(self._connection, description.term):
                    continue
            except OSError:
                pass  # the supervisor has ended or is unreachable
            if self._ended.wait(TETHER_S):
                return
            try:
                term = read_term(self._directory)
                self._description = self._inquiry.answer(_log.info, lambda: not self._ended.is_set(), term)
            except (PipelineError, PeerViolation, Unavailable):
                continue

    def _lasts(self, connection: socket.socket, term: int) -> bool:
        """Wait a moment; return whether the tether is still connected to the supervisor that leads."""
        try:
            return bool(connection.recv(1024))
        except TimeoutError:
            if read_term(self._directory) <= term:
                return True
        connection.close()
        return False

    def stop(self) -> None:
        """End the tether, which signals to the supervisor that the agent of this host has ended."""
        self._ended.set()
        if self._connection is not None:
            try:
                self._connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the connection has already ended


class Outage:
    """Reports once that a store does not answer, and once that it answers again, no matter how many attempts fail."""

    def __init__(self) -> None:
        self._lasts = False

    def report(self, problem: str) -> None:
        """Record the problem of a failed attempt, or an empty string after a success."""
        if problem and not self._lasts:
            say(f"{problem}; waiting for the store; if this lasts, check the URL and the credentials")
        elif not problem and self._lasts:
            say("the store answers again")
        self._lasts = bool(problem)


def say(line: str) -> None:
    """Print a line for the user to standard error."""
    print(f"causal: {printable(line)}", file=sys.stderr, flush=True)
