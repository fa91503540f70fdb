"""The hosts of a job: which hosts are alive, in which incarnation, and when a host counts as lost (design 0024).

A job on one machine has only the host `LOCAL`, which does not join and is never lost.  Decisions change the table only
through `apply`, both in live operation and after a restart.  The only fact that is not journaled is when each host was
last heard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from causal.errors import invariant
from standby.supervision.effects import Record
from standby.supervision.transitions import following

LOCAL = ""
"""The host that runs all processes of a job on one machine."""

GATHER_NS, EXPECT_NS, CLUSTER_NS = 2_000_000_000, 10_000_000_000, 600_000_000_000
"""The time for which the first tasks wait for more hosts, counted from the first join: if the number of hosts is
unknown, if some expected hosts are missing, and if a cluster has to find room for the hosts."""

BEATS_PER_TIMEOUT = 6
"""The number of beats within the silence that counts as a host's death; more would only load the supervisor."""

REPLACED_KEPT = 16
"""The number of replaced sessions of a host that are remembered."""

SLOTS_MAX = 10_000
"""The largest number of processes for which a host may offer room."""


class HostState(Enum):
    """The state of a host, as the supervisor knows it."""

    JOINED = "joined"  # its agent beats, and processes may start there
    DRAINING = "draining"  # no process may start there, and its tasks move to other hosts
    LOST = "lost"  # it has never joined or counts as dead; its messages are fenced until it joins again


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
    """One host, from its first join onwards."""

    name: str
    state: HostState = HostState.LOST
    incarnation: int = 0
    """Increases with each join that follows a loss; 0 for `LOCAL`."""
    session: str = ""
    """The mark of the agent's current set of processes.  If the mark changes, all earlier processes have ended."""
    replaced: tuple[str, ...] = ()
    """The most recently replaced sessions; their agents no longer represent the host."""
    slots: int = SLOTS_MAX
    """The number of processes for which the host has room."""
    zone: str = ""
    machine: str = ""
    """The machine of the host.  Two hosts may share one machine, for example two executors."""
    labels: Mapping[str, str] = field(default_factory=dict)
    seen_ns: int = 0
    """The time at which this supervisor last heard from the host's agent, or learnt of the host."""
    beaten: bool = False
    """Whether the host's agent has sent this supervisor a beat since joining."""
    version: str = ""
    """The package version on the host; empty if the agent does not report it."""
    clock_error_ns: int | None = None
    """The largest possible error of the host's times, according to its last beat; None until the host has measured
    it."""
    breakable: bool | None = None
    """Whether the host's agent may be killed on request; None if the agent does not know this order."""
    changes: bool = False
    """Whether the host's agent can be sent another version of the job."""

    def step(self, trigger: str) -> None:
        """Perform the transition for the trigger, which the table must contain."""
        self.state = following(HOST_TABLE, self.state, trigger, self.name)

    @property
    def living(self) -> bool:
        return self.state is not HostState.LOST


class Hosts:
    """All hosts of a job.

    Args:
        several: whether hosts join over the network; otherwise `LOCAL` is the only host from the start.
        timeout_ns: the silence after which an agent's host counts as dead.
        expected: how many hosts should join.
        expect_ns: how long the first tasks wait for missing hosts.
        beat_ns: the shortest interval between an agent's beats, however short the time-out is.
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
        """The times of the last sign of life of any host, and of the first one after all hosts were last silent."""
        self._look_ns = 0
        """No host counts as dead before this time, because beats and joins only postpone it."""
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
        """Apply one decision; a decision that does not concern hosts has no effect."""
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
            entry.breakable, entry.changes = record.get("breakable"), record.get("changes", False)
        elif kind == "host_lost":
            self._all[record["host"]].step("lose")
        elif kind == "host_draining":
            self._all[record["host"]].step("drain" if record["draining"] else "keep")
        elif kind == "resumed" and self.several:
            for entry in self._all.values():
                entry.state = HostState.LOST  # all processes of the job have ended

    @property
    def unchanging(self) -> str:
        """The reason why the agent of a living host cannot be sent another version of the job; empty if all can."""
        for each in self._all.values() if self.several else ():
            if each.living and not each.changes:
                of = f" (causal-streams {each.version})" if each.version else ""
                which = f"the agent of host {each.name}{of}"
                return f"{which} cannot change a running job; upgrade causal-streams there first"
        return ""

    def decisions(self) -> list[Record]:
        """Return decisions that give another version of the running job the same table.

        They follow the decision that all processes have ended, which is true of those of the version before.
        """
        records: list[Record] = []
        for each in self._all.values() if self.several else ():
            facts = {"slots": each.slots, "zone": each.zone, "machine": each.machine, "labels": dict(each.labels)}
            facts.update(version=each.version, breakable=each.breakable, changes=each.changes)
            which = {"host": each.name, "incarnation": each.incarnation}
            records.append({"kind": "host_joined", **which, "session": each.session, **facts})
            if each.state is HostState.DRAINING:
                records.append({"kind": "host_draining", "host": each.name, "draining": True})
            elif each.state is HostState.LOST:
                why = "it was lost before the job changed"
                records.append(
                    {"kind": "host_lost", **which, "why": why, "since_ns": 0, "detected_ns": 0, "left": True}
                )
        return records

    def accepts(self, name: str, incarnation: int) -> bool:
        """Return whether the host is alive in this incarnation, so that a message from it is accepted."""
        entry = self._all.get(name)
        return entry is not None and entry.living and entry.incarnation == incarnation

    def heard(self, name: str, now_ns: int) -> None:
        """Record a sign of life from a host's agent."""
        if self._silence(now_ns):
            self._hearing_since_ns = now_ns
        self._all[name].seen_ns = self._heard_ns = now_ns

    def hearing_since_ns(self, now_ns: int) -> int:
        """Return the time since which at least one host has been heard; the present time while all hosts are silent.

        While all hosts are silent, either the supervisor itself is cut off, or no host is left that could take over.
        No host therefore counts as dead.
        """
        return now_ns if self.several and self._silence(now_ns) else self._hearing_since_ns

    def _silence(self, now_ns: int) -> bool:
        # After a shorter interruption, the next beat of a living host arrives within the host's time-out.
        return now_ns - self._heard_ns >= self._timeout_ns - max(self._timeout_ns // BEATS_PER_TIMEOUT, self._beat_ns)

    def silent_s(self, now_ns: int, listening_since_ns: int) -> float:
        """Return how many seconds ago the agent on this machine was last heard.

        Args:
            listening_since_ns: as for `silent`.

        Returns: 0 for a multi-host job, where the host states show this.
        """
        if self.several:
            return 0.0
        return round(max(0, now_ns - max(self._all[LOCAL].seen_ns, listening_since_ns)) / 1e9, 1)

    def restored(self, now_ns: int) -> None:
        """Restart the time-out of every host now, because this supervisor has just begun to listen."""
        for entry in self._all.values():
            entry.seen_ns = now_ns

    def silent(self, now_ns: int, listening_since_ns: int) -> list[HostEntry]:
        """Return the hosts that now count as dead.

        Args:
            listening_since_ns: the time since which the supervisor has been awake without a gap; earlier silence proves
                nothing about a host.
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
        """Return the time of the next check for dead hosts; None if no host can count as dead."""
        return self._look_ns if self.several and any(entry.living for entry in self._all.values()) else None

    def gathered(self, now_ns: int) -> bool:
        """Return whether the first tasks may be placed, because every expected host has joined or the wait is over.

        Tasks move to hosts that join later only one by one, so a job should not be placed entirely on its first host.
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
        """Whether every living host has sent this supervisor a beat, so that all living processes are known."""
        return all(entry.beaten for entry in self._all.values() if entry.living) or not self.several


@dataclass(slots=True)
class HostLoss:
    """The loss of a host, with the tasks that other processes had to take over."""

    host: str
    incarnation: int
    why: str
    since_ns: int
    detected_ns: int
    tasks: dict[str, int] = field(default_factory=dict)
    """Task → the incarnation that took over the task."""


class HostLosses:
    """The losses of hosts, oldest first.  The oldest are discarded when there are too many."""

    KEPT = 1000

    def __init__(self) -> None:
        self.losses: list[HostLoss] = []
        self.numbers: dict[str, int] = {}
        """Host → how many times it was lost, including losses that are no longer kept."""

    def apply(self, record: Record) -> None:
        """Apply one decision; `gone` decisions after a `host_lost` concern the lost host's tasks.

        A drained host that then ends counts as having left, not as lost.
        """
        kind = record["kind"]
        if kind == "host_lost" and not record.get("left"):
            facts = {name: record[name] for name in ("host", "incarnation", "why", "since_ns", "detected_ns")}
            self.losses.append(HostLoss(**facts))
            self.numbers[record["host"]] = self.numbers.get(record["host"], 0) + 1
            del self.losses[: -self.KEPT]
        elif kind == "gone" and record["task"] and record.get("host_lost") and self.losses:
            self.losses[-1].tasks[record["task"]] = record["incarnation"] + 1
