"""The agents in Spark's executors: when each is submitted or resubmitted, and when its executor is released.

Each agent is a Spark job of one task (design 0024).  Spark chooses the executor; this module, and never Spark, decides
on repetitions: a task that ends is submitted again after a wait that doubles, without limit while another agent works,
but no longer once every agent has failed for a reason that would recur on another attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from standby.supervision.transitions import following

BACKOFF_NS_MIN, BACKOFF_NS_MAX = 1_000_000_000, 30_000_000_000
"""The wait before an agent is resubmitted; even the shortest is longer than the supervisor takes to read a new key."""

SOUND_NS = 60_000_000_000
"""The duration after which an attempt no longer counts as a consecutive failure."""

REFUSALS_MAX, FAILURES_MAX = 3, 20
"""The numbers of consecutive attempts after which an agent is hopeless: those that were refused, and all failures."""

FINISHED, REFUSED = 0, 2
"""Exit statuses of `causal agent`: the job has ended; the host cannot take part, whenever it tries."""


class AgentState(Enum):
    """The state of one agent, as known to the driver."""

    WAITING = "waiting"  # its back-off has not ended
    SUBMITTED = "submitted"  # its Spark job waits for an executor or runs
    DRAINING = "draining"  # its executor is being decommissioned: its tasks move to other hosts
    LEAVING = "leaving"  # it has no tasks left, and its Spark job was cancelled
    DONE = "done"  # the job has ended


_S = AgentState
TABLE: dict[tuple[AgentState, str], AgentState] = {
    (_S.WAITING, "submit"): _S.SUBMITTED,
    (_S.SUBMITTED, "decommission"): _S.DRAINING,
    (_S.DRAINING, "cancel"): _S.LEAVING,
    **{(state, "end"): _S.WAITING for state in (_S.SUBMITTED, _S.DRAINING, _S.LEAVING)},
    **{(state, "finish"): _S.DONE for state in (_S.SUBMITTED, _S.DRAINING, _S.LEAVING)},
}


@dataclass(frozen=True, slots=True)
class Ended:
    """The Spark job of an agent has ended.

    Attributes:
        status: the exit status of `causal agent`; None if Spark's job failed, or the executor was lost.
        line: the last line that the agent reported.
    """

    agent: str
    status: int | None
    line: str = ""


@dataclass(frozen=True, slots=True)
class Decommissioned:
    """Spark has announced that it will remove the executor of an agent."""

    agent: str


@dataclass(frozen=True, slots=True)
class Emptied:
    """No process of the job is left on the host of an agent."""

    agent: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = Ended | Decommissioned | Emptied | Tick


@dataclass(frozen=True, slots=True)
class Submit:
    """Run the agent as a Spark job."""

    agent: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Renew:
    """Replace the key of an agent, so that processes of its last attempt cannot rejoin in its place."""

    agent: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Ask the supervisor to move the tasks of this host."""

    agent: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the Spark job of an agent."""

    agent: str


@dataclass(frozen=True, slots=True)
class Say:
    """Write a line to the log."""

    line: str


@dataclass(frozen=True, slots=True)
class Fail:
    """End the job with this reason."""

    line: str


Effect = Submit | Renew | Drain | Cancel | Say | Fail


@dataclass(slots=True)
class Agent:
    """One agent, across all its attempts."""

    name: str
    state: AgentState = AgentState.WAITING
    attempt: int = 0
    due_ns: int = 0
    since_ns: int = 0
    failures: int = 0
    """The number of consecutive attempts that did not work for long."""
    refusals: int = 0
    """The number of consecutive attempts among them that ended with `REFUSED`."""

    def step(self, trigger: str) -> None:
        """Perform the transition, which must be in the table."""
        self.state = following(TABLE, self.state, trigger, self.name)

    @property
    def hopeless(self) -> bool:
        return self.refusals >= REFUSALS_MAX or self.failures >= FAILURES_MAX


class Attempts:
    """The attempts of all agents of one job; `handle` processes an event and returns the actions."""

    def __init__(self, names: Sequence[str]) -> None:
        self.agents = {name: Agent(name) for name in names}

    def handle(self, event: Event, now_ns: int) -> list[Effect]:
        match event:
            case Tick():
                return self._due(now_ns)
            case Ended():
                return self._ended(self.agents[event.agent], event, now_ns)
            case Decommissioned(agent):
                return self._decommissioned(self.agents[agent])
            case Emptied(agent):
                return self._emptied(self.agents[agent])

    def next_ns(self) -> int | None:
        """Return the time at which the next agent is to be submitted; None if no agent waits."""
        return min((each.due_ns for each in self.agents.values() if each.state is AgentState.WAITING), default=None)

    def _due(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        for agent in self.agents.values():
            if agent.state is AgentState.WAITING and agent.due_ns <= now_ns:
                agent.step("submit")
                agent.attempt += 1
                agent.since_ns = now_ns
                effects.append(Submit(agent.name, agent.attempt))
            elif agent.state is not AgentState.WAITING and now_ns - agent.since_ns >= SOUND_NS:
                agent.failures = agent.refusals = 0
        return effects

    def _ended(self, agent: Agent, end: Ended, now_ns: int) -> list[Effect]:
        if end.status == FINISHED:
            agent.step("finish")
            return []
        left = agent.state is AgentState.LEAVING
        agent.step("end")
        sound = left or now_ns - agent.since_ns >= SOUND_NS
        agent.failures = 0 if sound else agent.failures + 1
        agent.refusals = agent.refusals + 1 if end.status == REFUSED and not sound else 0
        wait_ns = min(BACKOFF_NS_MIN << max(0, agent.failures - 1), BACKOFF_NS_MAX)
        agent.due_ns = now_ns + wait_ns
        line = f"{agent.name}: attempt {agent.attempt} ended ({end.line or 'without a message'})"
        if all(each.hopeless for each in self.agents.values()):
            return [Fail(f"no agent can run in Spark's executors; {end.line or line}")]
        return [Renew(agent.name), Say(f"{line}; the next attempt starts in {wait_ns / 1e9:.0f} s")]

    def _decommissioned(self, agent: Agent) -> list[Effect]:
        if agent.state is not AgentState.SUBMITTED:
            return []
        agent.step("decommission")
        return [Drain(agent.name), Say(f"{agent.name}: Spark decommissions its executor; its tasks move")]

    def _emptied(self, agent: Agent) -> list[Effect]:
        if agent.state is not AgentState.DRAINING:
            return []
        agent.step("cancel")
        return [Cancel(agent.name), Say(f"{agent.name}: it has no tasks left and leaves its executor")]
