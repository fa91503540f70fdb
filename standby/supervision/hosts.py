"""The hosts of a job: which of them live, in which incarnation, and the signs by which one counts as lost.

Design 0024.

A job on one machine has the host `LOCAL` alone, which needs no join and is never lost.  Decisions change the table only
through `apply`, live and after a restart alike; when a host was last heard of is the only fact that is not journaled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from causal.errors import invariant
from standby.supervision.effects import Record
from standby.supervision.transitions import following

LOCAL = ""
"""The host of all processes of a job on one machine."""

GATHER_NS, EXPECT_NS, CLUSTER_NS = 2_000_000_000, 10_000_000_000, 600_000_000_000
"""The time for which the first tasks wait for more hosts, counted from the first that has joined: where it is not known
how many will come, where some of the expected ones are missing, and where a cluster has to find room for them."""

BEATS_PER_TIMEOUT = 6
"""Beats of a host's agent within the silence that counts as its death: more would only cost the supervisor."""

REPLACED_KEPT = 16
"""The number of replaced sessions of a host that are remembered."""

SLOTS_MAX = 10_000
"""The most processes that a host may offer room for."""


class HostState(Enum):
    """The state of a host, as the supervisor knows it."""

    JOINED = "joined"  # its agent beats; processes may start there
    DRAINING = "draining"  # no process starts there, and tasks move off it
    LOST = "lost"  # it has never joined, or counts as dead: what it sends is fenced until it joins again


_S = HostState
HOST_TABLE: dict[tuple[HostState, str], HostState] = {
    (_S.LOST, "join"): _S.JOINED,
    (_S.JOINED, "drain"): _S.DRAINING,
    (_S.DRAINING, "drain"): _S.DRAINING,
    (_S.DRAINING, "keep"): _S.JOINED,
    (_S.JOINED, "keep"): _S.JOINED,
    (_S.JOINED, "lose"): _S.LOST,
    (_S.DRAINING, "lose"): _S.LOST,
}


@dataclass(slots=True)
class HostEntry:
    """One host, from its first join on."""

    name: str
    state: HostState = HostState.LOST
    incarnation: int = 0
    """Rises with each join after a loss; 0 for `LOCAL`."""
    session: str = ""
    """The mark of one life of its agent's processes: another one means that they have all ended."""
    replaced: tuple[str, ...] = ()
    """The last sessions after which another one began: their agents are not the host any more."""
    slots: int = SLOTS_MAX
    """The number of processes that it has room for."""
    zone: str = ""
    machine: str = ""
    """The machine that it is on: two hosts, for example two executors, may share one."""
    labels: Mapping[str, str] = field(default_factory=dict)
    seen_ns: int = 0
    """Time at which this supervisor last heard of its agent, or learnt of it."""
    beaten: bool = False
    """Whether its agent has beaten to this supervisor since it joined."""
    version: str = ""
    """The version of the package on it; empty if its agent does not say."""
    clock_error_ns: int | None = None
    """The largest error of times from it, as its last beat says; None before it has measured."""
    breakable: bool | None = None
    """Whether its agent permits to be killed on request; None if it cannot be ordered to die."""

    def step(self, trigger: str) -> None:
        """Take the transition, which must be in the table."""
        self.state = following(HOST_TABLE, self.state, trigger, self.name)

    @property
    def living(self) -> bool:
        return self.state is not HostState.LOST


class Hosts:
    """All hosts of a job.

    Args:
        several: hosts join over the network; otherwise `LOCAL` is the only one, from the start.
        timeout_ns: silence of an agent that counts as the death of its host.
        expected: the number of hosts that are to join.
        expect_ns: how long the first tasks wait for missing ones.
        beat_ns: the shortest interval of an agent's beats, however short the time-out is.
    """

    def __init__(
        self, several: bool, timeout_ns: int, expected: int = 0, expect_ns: int = EXPECT_NS, beat_ns: int = 0
    ) -> None:
        self.several = several
        self._timeout_ns = timeout_ns
        self._beat_ns = beat_ns
        self._expected = expected
        self._expect_ns = expect_ns
        self._gathering_ns = 0
        self._heard_ns = self._hearing_since_ns = 0
        """The times of the last sign of life of any host, and of the first one after the last silence of all."""
        self._look_ns = 0
        """No host counts as dead before this moment: beats and joins only move it later."""
        self._all: dict[str, HostEntry] = {}
        if not several:
            self._all[LOCAL] = HostEntry(LOCAL, HostState.JOINED)

    def __getitem__(self, name: str) -> HostEntry:
        return self._all[name]

    def get(self, name: str) -> HostEntry | None:
        return self._all.get(name)

    def __iter__(self) -> Iterator[HostEntry]:
        return iter(self._all.values())

    def apply(self, record: Record) -> None:
        """Apply one decision; kinds that do not concern hosts change nothing."""
        kind = record["kind"]
        if kind == "host_joined":
            entry = self._all.setdefault(record["host"], HostEntry(record["host"]))
            invariant(record["incarnation"] > entry.incarnation, "host incarnations rise", host=entry.name)
            entry.step("join")
            if entry.session != record["session"]:
                entry.replaced = (*entry.replaced, entry.session)[-REPLACED_KEPT:]
            entry.incarnation, entry.session = record["incarnation"], record["session"]
            entry.slots, entry.zone, entry.machine = record["slots"], record["zone"], record["machine"]
            entry.labels, entry.beaten = dict(record["labels"]), False
            entry.version, entry.clock_error_ns = record.get("version", ""), None
            entry.breakable = record.get("breakable")
        elif kind == "host_lost":
            self._all[record["host"]].step("lose")
        elif kind == "host_draining":
            self._all[record["host"]].step("drain" if record["draining"] else "keep")
        elif kind == "resumed" and self.several:
            for entry in self._all.values():
                entry.state = HostState.LOST  # every process of the job has ended

    def accepts(self, name: str, incarnation: int) -> bool:
        """Return whether a message of that incarnation of a host is of the one that lives."""
        entry = self._all.get(name)
        return entry is not None and entry.living and entry.incarnation == incarnation

    def heard(self, name: str, now_ns: int) -> None:
        """Record a sign of life of a host's agent."""
        if self._silence(now_ns):
            self._hearing_since_ns = now_ns
        self._all[name].seen_ns = self._heard_ns = now_ns

    def hearing_since_ns(self, now_ns: int) -> int:
        """Return the moment since which hosts are heard, of whichever of them; now while all of them are silent.

        The supervisor itself is cut off then, or no host is left that could take over: either way none counts as dead.
        """
        return now_ns if self.several and self._silence(now_ns) else self._hearing_since_ns

    def _silence(self, now_ns: int) -> bool:
        # After a shorter cut the next beat of a host that lives comes within its time-out.
        return now_ns - self._heard_ns >= self._timeout_ns - max(self._timeout_ns // BEATS_PER_TIMEOUT, self._beat_ns)

    def silent_s(self, now_ns: int, listening_since_ns: int) -> float:
        """Seconds since the agent of a job on one machine was last heard; 0 on several hosts, which have states.

        Args:
            listening_since_ns: as for `silent`.
        """
        if self.several:
            return 0.0
        return round(max(0, now_ns - max(self._all[LOCAL].seen_ns, listening_since_ns)) / 1e9, 1)

    def restored(self, now_ns: int) -> None:
        """Restart the time-out of every host now: this supervisor has just begun to listen."""
        for entry in self._all.values():
            entry.seen_ns = now_ns

    def silent(self, now_ns: int, listening_since_ns: int) -> list[HostEntry]:
        """Return the hosts that count as dead now.

        Args:
            listening_since_ns: the moment from which the supervisor has been awake without a gap: silence before it
                says nothing about a host.
        """
        if not self.several or now_ns < self._look_ns:
            return []
        self._look_ns = now_ns + self._timeout_ns
        dead = []
        for entry in self._all.values():
            if entry.living:
                at_ns = max(entry.seen_ns, listening_since_ns) + self._timeout_ns
                self._look_ns = min(self._look_ns, max(at_ns, now_ns))
                if now_ns >= at_ns:
                    dead.append(entry)
        return dead

    def deadline_ns(self) -> int | None:
        """Return the moment of the next look for hosts that are dead; None if there can be none."""
        return self._look_ns if self.several and any(entry.living for entry in self._all.values()) else None

    def gathered(self, now_ns: int) -> bool:
        """Return whether first tasks may be placed: every expected host has joined, or has had its time to.

        Tasks do not move to hosts that join later, so a job that began on its first host would stay there.
        """
        joined = sum(1 for entry in self._all.values() if entry.living)
        if not joined:
            self._gathering_ns = 0
        elif not self._gathering_ns:
            self._gathering_ns = now_ns
        full = joined >= self._expected > 0
        wait_ns = self._expect_ns if self._expected else GATHER_NS
        return not self.several or full or (joined > 0 and now_ns - self._gathering_ns >= wait_ns)

    @property
    def all_beaten(self) -> bool:
        """Whether every living host has beaten to this supervisor, so that all processes that live are known."""
        return all(entry.beaten for entry in self._all.values() if entry.living) or not self.several


@dataclass(slots=True)
class HostLoss:
    """The loss of a host, and the tasks that had to be taken over."""

    host: str
    incarnation: int
    why: str
    since_ns: int
    detected_ns: int
    tasks: dict[str, int] = field(default_factory=dict)
    """Task → the incarnation that took it over."""


class HostLosses:
    """The losses of hosts, oldest first; the oldest are dropped first."""

    KEPT = 1000

    def __init__(self) -> None:
        self.losses: list[HostLoss] = []
        self.numbers: dict[str, int] = {}
        """Host → how often it was lost, also where the losses are not kept any more."""

    def apply(self, record: Record) -> None:
        """Apply one decision; the ends of processes after a `host_lost` are those of its tasks.

        A host that was drained before it ended has left, and is not a loss.
        """
        kind = record["kind"]
        if kind == "host_lost" and not record.get("left"):
            facts = {name: record[name] for name in ("host", "incarnation", "why", "since_ns", "detected_ns")}
            self.losses.append(HostLoss(**facts))
            self.numbers[record["host"]] = self.numbers.get(record["host"], 0) + 1
            del self.losses[: -self.KEPT]
        elif kind == "gone" and record["task"] and record.get("host_lost") and self.losses:
            self.losses[-1].tasks[record["task"]] = record["incarnation"] + 1
