"""The modules that the processes of a small job load determine their memory and the time that they need to start."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.architecture.source import ROOT

NETWORK = ("asyncio", "email", "html", "http", "importlib.metadata", "ssl", "urllib.request")
LIBRARIES = (
    "confluent_kafka",
    "fastavro",
    "deltalake",
    "nats",
    "numpy",
    "pandas",
    "prometheus_client",
    "psycopg",
    "pyarrow",
    "pyiceberg",
    "pyspark",
    "redis",
    "rich",
    "starlette",
    "uvicorn",
    "websockets",
)
RARE = ("difflib", "doctest", "pdb", "unittest")
PROCESSES = {
    "follower": (
        ("deploy.launching.following",),
        ("argparse", "causal.config", "_hashlib", "logging", "operators", "shutil", "sqlite3", "subprocess", "zmq"),
        190,
    ),
    "supervisor": (("standby.daemon",), ("deploy", "operators"), 307),
    "agent": (("standby.agent",), ("deploy", "operators", "sqlite3"), 305),
    "worker": (
        ("operators.runtime.worker",),
        (
            "deploy",
            "operators.sinks.postgres",
            "operators.sinks.redis",
            "operators.kafka",
            "operators.nats",
            "standby.daemon",
            "operators.builder.drawing",
        ),
        600,
    ),
    "preparation": (("deploy.cli",), ("deploy.doctor", "deploy.new_project", "deploy.ui"), 690),
}
"""Process → the modules that it runs, others that it must not load, and a bound on the number of modules."""


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_of_a_small_job_loads_only_what_it_needs(process: str) -> None:
    modules, forbidden, most = PROCESSES[process]
    program = f"import {', '.join(modules)}, json, sys; print(json.dumps(sorted(sys.modules)))"
    shown = subprocess.run([sys.executable, "-P", "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = json.loads(shown.stdout)
    unwanted = (*forbidden, *NETWORK, *LIBRARIES, *RARE)
    surplus = [name for name in loaded if any(name == each or name.startswith(f"{each}.") for each in unwanted)]
    assert not surplus, f"import these where they are used: {', '.join(surplus)}"
    assert len(loaded) <= most, f"{len(loaded)} modules; import some where they are used, or raise the bound"
