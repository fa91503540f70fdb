"""A real Prometheus on loopback, with the configuration that is shipped."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.faults.job import wait_for
from tests.faults.test_lines import free_port
from tests.unit.deploy.expressions import ALERTS, CONFIGURATION

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
MISSING = "there is no Prometheus here (Debian: apt install prometheus)"


class Prometheus:
    """One server; `ask` gives the result of a query."""

    def __init__(self, port: int) -> None:
        self._at = f"http://127.0.0.1:{port}"

    def ready(self) -> bool:
        try:
            with urlopen(f"{self._at}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def _get(self, path: str, **arguments: str) -> Any:
        with urlopen(f"{self._at}/api/v1/{path}?{urlencode(arguments)}", timeout=30) as answer:
            reply = json.load(answer)
        assert reply["status"] == "success", reply
        return reply["data"]

    def ask(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return the (labels, value) of each series."""
        return [(each["metric"], float(each["value"][1])) for each in self._get("query", query=expression)["result"]]

    def series(self, expression: str) -> list[tuple[dict[str, str], float]] | None:
        """Return the same, but None for no series."""
        return self.ask(expression) or None

    def alerts(self) -> dict[str, str]:
        """Alert → its state, of those that are pending or firing."""
        return {each["labels"]["alertname"]: each["state"] for each in self._get("alerts")["alerts"]}

    def rules(self) -> dict[str, str]:
        """Rule → its health."""
        return {rule["name"]: rule["health"] for group in self._get("rules")["groups"] for rule in group["rules"]}


@contextmanager
def prometheus(directory: Path, metrics_port: int) -> Iterator[Prometheus]:
    """Yield a server that scrapes one job every half second."""
    configuration = yaml.safe_load(CONFIGURATION.read_text())
    configuration["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    configuration["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{metrics_port}"]}]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    shutil.copy(ALERTS, directory / ALERTS.name)
    port = free_port()
    with open(directory / "prometheus.log", "w") as log:
        process = subprocess.Popen(
            [
                str(PROMETHEUS), f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'series'}", f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        server = Prometheus(port)
        wait_for("Prometheus is ready", server.ready)
        yield server
    finally:
        process.terminate()
        process.wait(30)
