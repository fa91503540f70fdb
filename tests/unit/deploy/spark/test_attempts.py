"""Agents are submitted to Spark when they should be: by hand, and over all sequences of events of a cluster."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deploy.spark.attempts import (
    BACKOFF_NS_MAX,
    BACKOFF_NS_MIN,
    FAILURES_MAX,
    FINISHED,
    REFUSALS_MAX,
    REFUSED,
    SOUND_NS,
    TABLE,
    AgentState,
    Attempts,
    Cancel,
    Decommissioned,
    Drain,
    Effect,
    Emptied,
    Ended,
    Event,
    Fail,
    Renew,
    Submit,
    Tick,
)

S = 1_000_000_000
NAMES = ("spark-1", "spark-2")


def submitted() -> Attempts:
    attempts = Attempts(NAMES)
    assert attempts.handle(Tick(), 0) == [Submit("spark-1", 1), Submit("spark-2", 1)]
    return attempts


def test_an_agent_that_ends_gets_another_key_and_is_submitted_after_a_wait_that_doubles() -> None:
    attempts, now_ns, waits = submitted(), 0, []
    for attempt in range(2, 9):
        effects = attempts.handle(Ended("spark-1", None, "executor lost"), now_ns)
        assert effects[0] == Renew("spark-1")
        due_ns = attempts.next_ns()
        assert due_ns is not None and attempts.handle(Tick(), due_ns - 1) == []
        waits.append((due_ns - now_ns) / S)
        now_ns = due_ns
        assert attempts.handle(Tick(), now_ns) == [Submit("spark-1", attempt)]
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_an_attempt_that_worked_for_long_is_no_failure() -> None:
    attempts = submitted()
    attempts.handle(Ended("spark-1", None), 0)
    attempts.handle(Tick(), S)
    attempts.handle(Ended("spark-1", None), S + SOUND_NS)
    assert attempts.next_ns() == S + SOUND_NS + BACKOFF_NS_MIN


def test_the_job_fails_once_every_agent_was_refused_in_a_row_and_not_while_one_works() -> None:
    attempts, now_ns = submitted(), 0
    for _ in range(2 * FAILURES_MAX):
        assert not failures(attempts, Ended("spark-1", REFUSED, "no"), now_ns)
        now_ns += BACKOFF_NS_MAX
        attempts.handle(Tick(), now_ns)
    assert not failures(attempts, Ended("spark-2", REFUSED, "it has worked for long"), now_ns)
    for left in reversed(range(REFUSALS_MAX)):
        now_ns += 4 * BACKOFF_NS_MIN
        attempts.handle(Tick(), now_ns)
        expected = [] if left else [Fail("no agent can run in Spark's executors; version 1")]
        assert failures(attempts, Ended("spark-2", REFUSED, "version 1"), now_ns) == expected


def failures(attempts: Attempts, event: Event, now_ns: int) -> list[Effect]:
    return [effect for effect in attempts.handle(event, now_ns) if isinstance(effect, Fail)]


def test_a_decommissioned_executor_is_drained_then_left_and_its_agent_is_submitted_again() -> None:
    attempts = submitted()
    assert attempts.handle(Decommissioned("spark-1"), S)[0] == Drain("spark-1")
    assert attempts.handle(Decommissioned("spark-1"), S) == []
    assert attempts.handle(Emptied("spark-1"), 2 * S)[0] == Cancel("spark-1")
    attempts.handle(Ended("spark-1", None, "cancelled"), 3 * S)
    assert attempts.agents["spark-1"].failures == 0
    assert attempts.handle(Tick(), 4 * S) == [Submit("spark-1", 2)]


def test_an_agent_whose_job_has_ended_is_not_submitted_again() -> None:
    attempts = submitted()
    assert attempts.handle(Ended("spark-1", FINISHED), S) == []
    assert attempts.handle(Ended("spark-2", FINISHED), S) == []
    assert attempts.next_ns() is None and attempts.handle(Tick(), 1000 * S) == []


names = st.sampled_from(NAMES)
steps = st.one_of(
    st.builds(Ended, names, st.sampled_from((None, 1, FINISHED, REFUSED, 75, -9))),
    st.builds(Decommissioned, names),
    st.builds(Emptied, names),
    st.just(Tick()),
)


@given(st.lists(st.tuples(steps, st.integers(0, 100 * S)), max_size=80))
def test_in_any_order_of_events_an_agent_runs_at_most_once_and_each_attempt_has_a_fresh_key(
    events: list[tuple[Event, int]],
) -> None:
    attempts, now_ns = Attempts(NAMES), 0
    running: dict[str, int] = {}
    renewed = dict.fromkeys(NAMES, True)
    for event, wait_ns in events:
        now_ns += wait_ns
        if isinstance(event, Ended) and event.agent not in running:
            continue  # only a Spark job that was submitted ends
        if isinstance(event, Ended):
            del running[event.agent]
        for effect in attempts.handle(event, now_ns):
            match effect:
                case Submit(agent, attempt):
                    assert agent not in running and renewed[agent], "a replaced key comes back"
                    running[agent], renewed[agent] = attempt, False
                case Renew(agent):
                    assert agent not in running
                    renewed[agent] = True
                case Drain(agent) | Cancel(agent):
                    assert agent in running
                case Fail():
                    assert not all(agent in running for agent in NAMES)
                    return
        for name, agent_state in ((each.name, each.state) for each in attempts.agents.values()):
            assert (agent_state in (AgentState.WAITING, AgentState.DONE)) == (name not in running)


def test_the_table_names_every_state() -> None:
    assert {state for state, _ in TABLE} | set(TABLE.values()) == set(AgentState)
