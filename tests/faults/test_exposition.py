"""The page of metrics of a real job: conventions, a recovery, and counters that never fall, whatever dies."""

from __future__ import annotations

from collections.abc import Callable
from urllib.request import Request, urlopen

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from benchmarks.harness.processes import SUPERVISOR, kill
from standby.supervision.recoveries import TIMED
from tests.faults.conftest import POOL, HeldChain
from tests.faults.job import wait_for
from tests.faults.test_lines import free_port
from tests.unit.deploy.exposition import breaches

StartChain = Callable[..., HeldChain]
Series = tuple[str, tuple[tuple[str, str], ...]]


def page(port: int) -> dict[str, Metric]:
    """Return the families that a client of OpenMetrics gets."""
    accepted = {"Accept": "application/openmetrics-text; version=1.0.0"}
    with urlopen(Request(f"http://127.0.0.1:{port}/metrics", headers=accepted), timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())  # type: ignore[no-untyped-call]
        return {family.name: family for family in families}


def rising(families: dict[str, Metric]) -> dict[Series, float]:
    """Return the values of everything that never falls."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families.values()
        if family.type in ("counter", "histogram")
        for sample in family.samples
    }


def values(family: Metric | None) -> dict[str, float]:
    """Task → the value of its sample."""
    return {} if family is None else {sample.labels["task"]: sample.value for sample in family.samples}


def recovered(families: dict[str, Metric]) -> list[float]:
    """Return the numbers of recoveries, by task."""
    return list(values(families.get("causal_recoveries")).values())


def at_work(families: dict[str, Metric]) -> dict[str, Metric] | None:
    """The families, once every task of the job has worked for a while."""
    busy, running = values(families.get("causal_task_busy_seconds")), values(families.get("causal_task_running"))
    return families if running and busy.keys() == running.keys() and all(busy.values()) else None


def test_a_recovery_is_in_the_metrics_and_no_counter_falls_whatever_dies(start_chain: StartChain) -> None:
    port = free_port()
    chain = start_chain("--checkpoint-interval", "0.3", *POOL, metrics_port=port)
    job = chain.job
    job.until_warm()
    before = wait_for("all tasks have worked", lambda: at_work(page(port)))
    assert breaches(before.values()) == []
    assert "causal_recovery_phase_seconds" not in before and "causal_host_up" not in before
    job.replace("score/0")
    assert set(values(before["causal_recoveries"]).values()) == {0}
    after = wait_for("the recovery is shown", lambda: page(port) if any(recovered(page(port))) else None)
    assert breaches(after.values()) == []
    assert {task: number for task, number in values(after["causal_recoveries"]).items() if number} == {"score/0": 1}
    after = wait_for(
        "each phase is shown",
        lambda: families if len(phases(families := page(port))) == len(TIMED) else None,
    )
    assert phases(after) == dict.fromkeys(TIMED, 1.0)
    took = {
        sample.labels["phase"]: sample.value
        for sample in after["causal_recovery_phase_seconds"].samples
        if sample.name.endswith("_sum")
    }
    ordered = [took[phase] for phase in TIMED if phase != "first_output"]
    assert 0 <= ordered[0] and ordered == sorted(ordered)

    last = rising(after)
    supervisor = job.server(SUPERVISOR)
    kill(supervisor)
    job.until("another supervisor shows the job", lambda view: view["supervisor_pid"] != supervisor)
    done = chain.until_checkpoint(0)
    while job.view() is not None and chain.until_checkpoint(0) < done + 3:
        now = rising(page(port))
        fallen = {series: (value, now[series]) for series, value in last.items() if now.get(series, value) < value}
        assert not fallen
        last |= now
    assert phases(page(port)) == dict.fromkeys(TIMED, 1.0), "what the journal holds is counted once"

    then = rising(page(port))
    job.kill_everything()
    job.start("--resume")

    def whole() -> dict[Series, float] | None:
        return now if then.keys() <= (now := rising(page(port))).keys() else None

    shown = job.until("the resumed job has a view", lambda view: view)
    sent = {task["task"]: task["figures"].get("sent_bytes", 0) for task in shown["tasks"]}
    earlier = {dict(labels)["task"]: value for (n, labels), value in then.items() if n == "causal_sent_bytes_total"}
    assert any(earlier.values()) and all(sent[task] >= value for task, value in earlier.items())
    resumed = wait_for("every counter is shown again", whole)
    assert {series: (value, resumed[series]) for series, value in then.items() if resumed[series] < value} == {}
    job.kill_everything()
    job.start("--resume")
    job.until_warm(records=200, checkpoints=2)
    chain.finish_exactly()


def phases(families: dict[str, Metric]) -> dict[str, float]:
    """Phase → the recoveries that have reached it."""
    samples = families["causal_recovery_phase_seconds"].samples
    return {sample.labels["phase"]: sample.value for sample in samples if sample.name.endswith("_count")}
