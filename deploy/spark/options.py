"""The options of `causal run --on`, and the preparation of a job's directory, address and keys for a cluster."""

from __future__ import annotations

import argparse
import re
import socket
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.errors import PipelineError
from causal.network.curve import new_key
from causal.network.roster import ROSTER, SUPERVISOR, Roster, save_key, save_members
from deploy.jobs.jobdirectory import SPARK
from deploy.launching.host_agent import own_address
from operators.spark.java import find_java
from standby.network.gate import EXECUTORS_ROSTER

PORTS = range(7700, 7800)
"""The ports to try if none is specified; they are below those that the kernel uses for outgoing connections."""

_MASTER = re.compile(r"spark://(\[[^\]]+\]|[^:,/]+):\d+.*|k8s://(?:https?://)?(\[[^\]]+\]|[^:,/]+)(:\d+)?.*")


def add_options(running: Any) -> None:
    """Add these options to those of `causal run`."""
    running.add_argument("--on", metavar="MASTER", help="hosts are executors there: spark://HOST:PORT, yarn, k8s://…")
    running.add_argument("--agents", type=int, metavar="N", help="with --on: the number of executors; default: 2")
    running.add_argument(
        "--spark-conf", action="append", default=[], metavar="NAME=VALUE", help="with --on: Spark's configuration"
    )


def for_executors(arguments: argparse.Namespace) -> bool:
    """Return whether an option is set that makes sense only with `--on`."""
    return getattr(arguments, "agents", None) is not None or bool(getattr(arguments, "spark_conf", None))


def settings_of(arguments: argparse.Namespace, master: str) -> dict[str, Any]:
    """Return the settings from the options; None for options that are not set.

    Raises:
        PipelineError: an option is wrong, or a required package is not installed.
    """
    conf: dict[str, str] = {}
    for entry in arguments.spark_conf:
        name, separator, value = entry.partition("=")
        if not separator or not name.startswith("spark."):
            raise PipelineError(f"--spark-conf {entry:.80}: use NAME=VALUE, with a name that begins with spark.")
        conf[name] = value
    check_installed()
    return {"on": master, "agents": arguments.agents, "spark_conf": conf or None}


def check_installed() -> None:
    """Refuse `--on` if its driver could not start.

    Raises:
        PipelineError: PySpark or a Java installation is missing.
    """
    if find_spec("pyspark") is None:
        raise PipelineError("--on needs PySpark; run: pip install 'causal-streams[spark]'")
    find_java()


def default_listen(master: str) -> str:
    """Return this machine's address on the route to a cluster, with a free port.

    Raises:
        PipelineError: the master string does not contain the cluster's address.
    """
    match = _MASTER.fullmatch(master)
    if match is None:
        raise PipelineError(
            f"--on {master} does not name the address of the cluster; add --listen tcp://ADDRESS:PORT: the "
            "address of this machine that the executors can reach"
        )
    address = own_address((match[1] or match[2]).strip("[]"))
    shown = f"[{address}]" if ":" in address else address
    return f"tcp://{shown}:{_free_port(address)}"


def _free_port(address: str) -> int:
    for port in PORTS:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise PipelineError(f"no port from {PORTS[0]} to {PORTS[-1]} is free at {address}; use --listen tcp://ADDRESS:PORT")


def agent_names(count: int) -> list[str]:
    """Return the names of the hosts whose agents run in executors."""
    return [f"spark-{number}" for number in range(1, count + 1)]


def prepared(config: JobConfig, job: Path) -> JobConfig:
    """Create the files that a job on a cluster needs in its directory; return the settings, including the keys.

    Raises:
        PipelineError: the roster contains a host that has the name of an agent.
    """
    if not config.on:
        return config
    folder = job / SPARK
    folder.mkdir(exist_ok=True, mode=0o700)
    if not config.key or Path(config.key).parent == folder:
        key = folder / f"{SUPERVISOR}.key"
        if not key.exists():
            save_key(folder, new_key(SUPERVISOR))
        config = replace(config, key=str(key), hosts=str(folder / ROSTER))
    own = Roster.load(Path(config.hosts))
    names = agent_names(config.agents)
    taken = [name for name in names if name in own.members]
    if taken:
        raise PipelineError(f"{config.hosts} has a host {taken[0]}, the name of an executor of --on; rename it")
    save_members(job / EXECUTORS_ROSTER, [])
    return replace(config, hosts_expected=len(own.hosts) + len(names))
