"""A supervisor of a multi-host job before it leads, as a candidate that watches the shared store (design 0024).

A candidate's directory contains the settings and the graph of the newest term, except for the settings of this machine
itself: the address on which it listens, its key and its roster.
"""

from __future__ import annotations

import json
import logging
import select
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from msgspec.structs import replace as replace_fields

from causal.config import JobConfig
from causal.errors import CorruptData, Fenced, PipelineError, Unavailable, invariant
from causal.network.roster import load_key
from causal.sealed import unseal
from causal.storage.files import replace_text
from causal.storage.shared import Depot
from standby.blueprint import FILE as GRAPH
from standby.blueprint import Blueprint
from standby.leadership.campaign import campaign
from standby.leadership.candidacy import Candidacy
from standby.leadership.candidates import RENEW_NS, Candidate, Presence
from standby.leadership.ledger import Ledger
from standby.leadership.term_journal import Sighting, read_back
from standby.leadership.terms import Term
from standby.network.ear import Ear
from standby.storage.journal import FILE as JOURNAL
from standby.storage.journal import journaled, lock_of
from standby.storage.store_journal import perform
from standby.supervision import events
from standby.supervision.effects import Record
from standby.supervision.job_view import JobView, LeaderView
from standby.supervision.supervision import Supervision

FILE = "leadership.json"
RESUMPTION = "resumption.json"
"""The file that makes a supervisor resume a job; it records the end of the journal that was copied to this directory.

`seen` is the (term, place) of the last entry, which may be a seal, and `base` is that of the last decision.
"""

UNBEGUN = (0, -1)
"""The (term, place) that stands for the decisions of a job that no supervisor has started."""

STATUS_NEWER = 76
"""The exit status of a candidate whose job was stopped and has a newer run."""

_log = logging.getLogger("standby.election")


@dataclass(frozen=True, slots=True)
class Identity:
    """Facts about a supervisor that must survive its process.

    Attributes:
        holder: the supervisor's mark in the store.
        successor: whether the supervisor was started as a successor; the end of a successor never stops the job.
        offset_ns: the job's time minus this machine's clock when this supervisor last led.
        boot: the boot ID of the machine, for which `offset_ns` is valid.
    """

    holder: str
    successor: bool = False
    offset_ns: int = 0
    boot: str = ""

    def save(self, directory: Path) -> None:
        """Write the facts to their file, replacing the file atomically."""
        replace_text(directory / FILE, json.dumps(asdict(self)))

    @classmethod
    def load(cls, directory: Path) -> Identity:
        """Read the facts from their file.

        Raises:
            CorruptData: the file is missing or damaged.
        """
        path = directory / FILE
        try:
            return cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError) as problem:
            raise CorruptData(f"{path} is damaged ({problem}); start the job again without --resume") from None


def begun(directory: Path) -> None:
    """Remove the files that the term started from, because its first entry has been written."""
    for name in (RESUMPTION, JOURNAL, JOURNAL + "-wal", JOURNAL + "-shm"):
        (directory / name).unlink(missing_ok=True)


def boot() -> str:
    """Return the boot ID of this machine; the monotonic clock restarts with each boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class JobClock:
    """The job's time, which is the clock of the job's first supervisor, as seen from this machine."""

    def __init__(self, offset_ns: int) -> None:
        self.offset_ns = offset_ns

    def now_ns(self) -> int:
        return time.monotonic_ns() + self.offset_ns


@dataclass(frozen=True, slots=True)
class Led:
    """A term that this supervisor has won.

    Attributes:
        exact: whether `clock` shows the job's time exactly; otherwise it may lag by seconds.
    """

    term: Term
    ledger: Ledger
    depot: Depot
    clock: JobClock
    exact: bool
    identity: Identity
    job: Path


class _Left(Exception):
    """Raised when a signal arrives or the candidate must end."""


class Election:
    """One supervisor's candidacy for the leadership of a job.

    Args:
        wake: a socket that becomes readable once this process must end.
    """

    def __init__(self, job: Path, config: JobConfig, wake: socket.socket) -> None:
        self._job = job
        self._own = config
        self._wake = wake
        self._identity = Identity.load(job)
        self._base, seen = _resumption(job)
        self._brought = journaled(job)
        self._lock = lock_of(job)
        self._depot = Depot(config.store, config.place_in_store, proof="")
        self._candidacy = Candidacy(self._identity.holder, not self._identity.successor, seen)
        self._followed: int | None = None
        self._ear: Ear | None = None
        self._presence = Presence(self._identity.holder)
        self._present_ns: int | None = None
        """The time at which the candidate last renewed its mark in the store; None before the first time."""
        self._shown: Candidate | None = None
        """The mark that the candidate last wrote."""
        self._term: Term | None = None
        self.newer = False
        """Whether the candidate ends because the job was stopped and a newer run of the job has begun."""

    def run(self) -> Led | None:
        """Return the term once it is won; return None if the job has ended or this process must end."""
        course = campaign(self._candidacy, self._described, self._report, self._hears)
        try:
            ledger = perform(course, self._depot, self._pause)
        except _Left:
            ledger = None
        else:
            if ledger is None:
                self._conclude()
        finally:
            if self._ear is not None:
                self._ear.close()  # the leader will bind the same address
        if self._present_ns is not None:
            with suppress(Unavailable):  # otherwise, the leader removes the mark once it is old
                perform(self._presence.withdraw(), self._depot)
        return None if ledger is None else self._led(ledger)

    def _pause(self, span_ns: int) -> int:
        """Publish the state of this candidate unless `span_ns` is 0, wait for `span_ns`, and return the time."""
        if span_ns:
            if self._ear is None:
                self._ear = Ear(self._own, self._job)
                self._ear.start()
            self._follow()
            if self._followed is not None:
                self._show_presence()
            self.newer = self._candidacy.stopped and self._identity.successor and self._has_newer()
        if self.newer:
            raise _Left
        if select.select([self._wake], [], [], span_ns / 1e9)[0]:
            raise _Left
        return time.monotonic_ns()

    def _hears(self) -> bool:
        return self._ear is not None and self._ear.hears

    def _has_newer(self) -> bool:
        return Depot(self._own.store, self._own.name, proof="").folders()[-1:] > [self._own.run]

    def _described(self, number: int, seen: Sighting | None) -> Term:
        self._term = Term(number, self._identity.holder, _name_of(self._own), self._own.listen, *self._described_here())
        return self._term

    def _described_here(self) -> tuple[str, str]:
        """Return the settings and the graph of the job as stored in this directory."""
        job, graph = ((self._job / file).read_text() for file in ("job.json", GRAPH))
        return job, graph

    def _adopt(self, ledger: Ledger) -> None:
        """Adopt the settings and the graph to which the inherited decisions apply.

        Raises:
            PipelineError: the job was to be resumed with changed settings, but from decisions that are no longer the
            last.
        """
        before = JobConfig.load(self._job), Blueprint.load(self._job)
        restore(self._job, self._own, ledger.job, ledger.graph)
        if self._base is not None and before != (JobConfig.load(self._job), Blueprint.load(self._job)):
            raise PipelineError("another supervisor has led this job in the meantime; resume it again")

    def _report(self, problem: str) -> None:
        if problem:
            _log.warning("%s", problem)

    def _led(self, ledger: Ledger) -> Led:
        if (self._base or UNBEGUN) == (ledger.inherited.term, ledger.inherited.place):
            ledger.replace(self._brought, *self._described_here())
        else:
            self._adopt(ledger)
        identity, seen = self._identity, self._candidacy.seen
        own = seen is None or (seen.term.holder == identity.holder and identity.boot == boot())
        proven_ns = self._candidacy.offset_ns_min
        offsets_ns = [each for each in (identity.offset_ns if own else None, proven_ns) if each is not None]
        clock = JobClock(max(offsets_ns, default=0))
        term = self._term
        invariant(term is not None, "a term that is won was described", term=ledger.term)
        return Led(term, ledger, self._depot, clock, own, identity, self._job)  # type: ignore[arg-type]

    def _follow(self) -> None:
        """Adopt the settings and the graph of another supervisor's newer term, and show its leader."""
        seen = self._candidacy.seen
        if seen is None or seen.term.number == self._followed or seen.term.holder == self._identity.holder:
            return
        try:
            inherited = perform(read_back(seen.term.number, seen.place), self._depot) if seen.place >= 0 else None
            version = seen.term if inherited is None else inherited  # the leader may have changed the job
            restore(self._job, self._own, version.job, version.graph)
            self._show(inherited.records if inherited is not None else (), seen.term)
            self._show_presence()
        except Fenced:
            return  # a newer entry contains all of these decisions, and the next check reads that entry
        if self._followed is None:
            _log.info("a candidate: %s leads %s", seen.term.leader, self._own.name)
        else:
            _log.info("%s leads %s now", seen.term.leader, self._own.name)
        self._followed = seen.term.number

    def _show_presence(self) -> None:
        """Renew this candidate's mark in the store if it is missing, outdated or old.

        The mark shows that the candidate is waiting, and whether it hears hosts.
        """
        now_ns = time.monotonic_ns()
        mark = Candidate(_name_of(self._own), self._own.listen, self._hears())
        if self._present_ns is None or mark != self._shown or now_ns - self._present_ns >= RENEW_NS:
            perform(self._presence.renew(mark), self._depot)
            self._present_ns, self._shown = now_ns, mark

    def _conclude(self) -> None:
        """Show how the job ended if another supervisor led it until then."""
        seen = self._candidacy.seen
        if seen is not None:
            decided = perform(read_back(seen.term.number, seen.place), self._depot)
            restore(self._job, self._own, decided.job, decided.graph)
            self._show(decided.records, seen.term)

    def _show(self, records: tuple[Record, ...], term: Term) -> None:
        """Write a view of the job that is based on decisions alone, because no process is heard here."""
        supervision = Supervision(JobConfig.load(self._job), Blueprint.load(self._job))
        supervision.handle(events.Restored(records), max(1, time.monotonic_ns()))
        write_status(self._job, replace_fields(supervision.view(), leader=leader_shown(term, here=False)))


def _name_of(config: JobConfig) -> str:
    """Return the name of this supervisor's key; empty if keys are not used."""
    return load_key(Path(config.key)).name if config.key else ""


def settings_of(text: str) -> JobConfig:
    """Parse the settings of a job from their text in the shared store.

    Raises:
        CorruptData: the settings are damaged.
    """
    try:
        return JobConfig.from_mapping(unseal(text), "the settings in the shared store")
    except ValueError as problem:
        raise CorruptData(f"the settings of the job in the shared store are damaged: {problem}") from None


def save_settings(directory: Path, config: JobConfig, graph: str) -> None:
    """Write settings and a graph that were read from the shared store to a directory."""
    config.save(directory)
    replace_text(directory / GRAPH, graph)


def restore(directory: Path, own: JobConfig, settings: str, graph: str) -> None:
    """Write another supervisor's settings and graph to a directory, but keep the settings of this machine from `own`.

    Raises:
        CorruptData: the settings are damaged.
    """
    config = replace(settings_of(settings), listen=own.listen, key=own.key, hosts=own.hosts, store=own.store)
    save_settings(directory, config, graph)


def leader_shown(term: Term, here: bool) -> LeaderView:
    """Return the leader as `status.json` shows it; `here` means that it is the supervisor of this directory."""
    return LeaderView(name=term.name or None, listen=term.listen, term=term.number, here=here)


def write_status(job: Path, view: JobView) -> None:
    """Replace the stored view of a job; if writing fails, log the problem."""
    try:
        replace_text(job / "status.json", json.dumps(view.content()))
    except OSError as problem:
        _log.warning("status.json cannot be written: %s", problem.strerror)


def _resumption(job: Path) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Return the (term, place) of the last decision that was copied here, and that of the last entry that was seen.

    Both are None if no job is to be resumed.
    """
    path = job / RESUMPTION
    try:
        content = json.loads(path.read_text())
        (base_term, base_place), (term, place) = content["base"], content["seen"]
        return (int(base_term), int(base_place)), (int(term), int(place))
    except FileNotFoundError:
        return None, None
    except (ValueError, KeyError, TypeError) as problem:
        raise PipelineError(f"{path} is damaged ({problem}); remove it") from None
