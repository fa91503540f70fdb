"""The shipped dashboard and alerts on a real Prometheus that scrapes a real job, whose task is killed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.faults.conftest import HeldChain, start, start_chain
from tests.faults.job import wait_for
from tests.faults.test_lines import free_port
from tests.servers.prometheus import MISSING, PROMETHEUS, PROMTOOL, prometheus
from tests.unit.deploy.expressions import CONFIGURATION, alerts, targets

__all__ = ["start", "start_chain"]
pytestmark = pytest.mark.skipif(PROMETHEUS is None or PROMTOOL is None, reason=MISSING)

ABSENT = frozenset((
    "Unread input", "Hosts", "Heard of", "Processes", "Dead letters", "Dropped, held back or revised",
    "Stores that are waited for",
))  # fmt: skip
"""The panels that may be empty for a job on one machine whose records are all well."""
KILLS = 6


def test_the_configuration_and_the_alerts_are_valid() -> None:
    checked = subprocess.run([str(PROMTOOL), "check", "config", str(CONFIGURATION)], capture_output=True, text=True)
    assert checked.returncode == 0 and f"{len(alerts())} rules found" in checked.stdout, checked.stdout + checked.stderr


def test_panels_have_data_a_recovery_is_seen_and_an_alert_fires(
    start_chain: Callable[..., HeldChain], tmp_path: Path
) -> None:
    port = free_port()
    chain = start_chain("--checkpoint-interval", "0.3", metrics_port=port)
    directory = tmp_path / "prometheus"
    directory.mkdir()
    with prometheus(directory, port) as server:
        chain.job.until_warm()
        wait_for("the job is scraped", lambda: server.ask("causal_recoveries_total") or None)
        assert set(server.rules()) == {rule["alert"] for rule in alerts()}
        assert {number for _, number in server.ask("causal_recoveries_total")} == {0}
        for _ in range(KILLS):
            chain.job.replace("score/0")
        seen = wait_for(
            "the recoveries are scraped",
            lambda: [each for each in server.ask("causal_recoveries_total") if each[1] >= 1] or None,
        )
        view = chain.job.view()
        assert view is not None
        # A series for each mode: a task that dies before its next standby is ready recovers cold.
        assert {(labels["job"], labels["task"]) for labels, _ in seen} == {(view["job"], "score/0")}
        for title, expression, _ in targets():
            query = expression.replace("$job", ".*")
            if title not in ABSENT:
                wait_for(f"{title}: {query} has data", partial(server.series, query))
            else:
                server.ask(query)
        wait_for("the alert fires", lambda: server.alerts().get("CausalTaskFailsAgainAndAgain") == "firing" or None)
        assert set(server.rules().values()) == {"ok"}
    chain.finish_exactly()
