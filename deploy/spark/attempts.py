"""Decides when each agent is submitted to Spark's executors, and when its executor is released.

Each agent is a Spark job with one task (design 0024).  Spark chooses the executor, but only this module decides on
repetitions.  A task that has ended is submitted again after a wait that doubles each time.  There is no limit on the
number of attempts while another agent works.  Once every agent has failed for a reason that would recur, there are no
more attempts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from standby.supervision.transitions import following

BACKOFF_NS_MIN, BACKOFF_NS_MAX = 1_000_000_000, 30_000_000_000
"""The wait before an agent is submitted again; even the shortest gives the supervisor time to read a new key."""

SOUND_NS = 60_000_000_000
"""If an attempt has lasted this long, it does not count as a consecutive failure."""

REFUSALS_MAX, FAILURES_MAX = 3, 20
"""The number of consecutive refusals, and that of consecutive failures of any kind, that make an agent hopeless."""

FINISHED, REFUSED = 0, 2
"""Exit statuses of `causal agent`: the job has ended, or the host could not take part at any other attempt either."""


class AgentState(Enum):
    """The state of one agent, as the driver knows it."""

    WAITING = "waiting"  # its back-off period has not ended
    SUBMITTED = "submitted"  # its Spark job is running or is waiting for an executor
    DRAINING = "draining"  # its executor is being decommissioned, so its tasks move to other hosts
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
        status: the exit status of `causal agent`; None if the Spark job failed or the executor was lost.
        line: the last line that the agent printed.
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
    """The host of an agent no longer has any process of the job."""

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
    """Replace an agent's key, so that processes of its last attempt cannot rejoin in its place."""

    agent: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Ask the supervisor to move this host's tasks to other hosts."""

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
    """End the job for this reason."""

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
    """The number of consecutive attempts that ended early."""
    refusals: int = 0
    """The number of consecutive attempts among them that ended with `REFUSED`."""

    def step(self, trigger: str) -> None:
        """Perform the transition for the trigger, which the table must contain."""
        self.state = following(TABLE, self.state, trigger, self.name)

    @property
    def hopeless(self) -> bool:
        return self.refusals >= REFUSALS_MAX or self.failures >= FAILURES_MAX


class Attempts:
    """The attempts of all agents of one job; `handle` processes an event and returns the actions to perform."""

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
        """Return when the next agent must be submitted; None if no agent is waiting."""
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
