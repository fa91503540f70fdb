"""The demonstration on several hosts: the inverted index in the executors of a Spark cluster, while hosts are lost.

A real Spark standalone cluster in three network namespaces: master and supervisor at home, an executor on each of the
other two.  One executor is killed, then the other host is cut off and healed; then every row is compared with a plain
computation over the same files.  Needs root, as it makes namespaces.

    python -m examples.hosts        # what `make demo-hosts` runs
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

from examples.corpus import STANDARD_LIBRARY
from examples.hosts.cluster import CORES, SparkCluster
from examples.hosts.job import HOME, ClusterJob
from examples.hosts.network import Network, missing
from examples.survive import compare, expected, phases_of

WORKERS = ("a", "b")
PIPELINE = Path(__file__).with_name("index.py")
UP_S, RECOVERED_S, END_S = 300.0, 60.0, 300.0
"""The longest that the demonstration waits for executors, for a recovery, and for the end of the job."""


class Story:
    """Prints lines with the time since the start."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def say(self, line: str) -> None:
        print(f"{time.monotonic() - self._began_s:5.0f} s  {line}", flush=True)


def places(view: Mapping[str, Any]) -> str:
    """Return the tasks on each host, in one line."""
    return "; ".join(f"{host['host']}: {', '.join(host['tasks']) or 'no task'}" for host in view["hosts"])


def survive(story: Story, job: ClusterJob, network: Network, cluster: SparkCluster) -> None:
    """Kill an executor, then cuts off a host and heals it; waits each time until all is as before."""
    job.await_("executors with all tasks and standbys", job.complete, UP_S)
    story.say(f"the job runs; {places(job.view())}")

    killed = max(("spark-1", "spark-2"), key=lambda name: len(job.host(name)["tasks"]))
    executor = cluster.executor_of(killed)
    if executor is None:
        raise TimeoutError(f"{killed} is in no executor of this cluster")
    os.kill(executor[0], signal.SIGKILL)
    story.say(f"SIGKILL of the executor of {killed}, on host {executor[1]}")
    job.await_("the tasks of that executor are live again", lambda: job.recovered(1), RECOVERED_S)
    story.say(f"live again; {places(job.view())}")
    job.await_("Spark has started another executor", job.complete, UP_S)
    story.say(f"{killed} is back as incarnation {job.host(killed)['incarnation']}, in another executor")

    cut = max(("spark-1", "spark-2"), key=lambda name: len(job.host(name)["tasks"]))
    executor = cluster.executor_of(cut)
    if executor is None:
        raise TimeoutError(f"{cut} is in no executor of this cluster")
    network.cut(executor[1])
    story.say(f"host {executor[1]} is cut off, with {cut}")
    job.await_("the tasks of that host are live again", lambda: job.recovered(2), RECOVERED_S)
    story.say(f"live again; {places(job.view())}")
    network.heal(executor[1])
    story.say(f"host {executor[1]} is connected again")
    job.await_("it has joined again", job.complete, UP_S)
    story.say(f"{cut} is back as incarnation {job.host(cut)['incarnation']}, empty at first")


def demonstrate(directory: Path, corpus: Path, stack: ExitStack) -> dict[str, int]:
    """Run all of it; returns the counts of rows.

    Raises:
        TimeoutError: something did not happen in its time.
    """
    story = Story()
    network = Network((HOME, *WORKERS))
    stack.callback(network.close)
    (directory / "spark").mkdir()
    cluster = SparkCluster(network, directory / "spark", HOME, WORKERS)
    stack.callback(cluster.close)
    story.say(f"a Spark cluster of {len(WORKERS)} workers at {cluster.url}")
    job = ClusterJob(directory, network, cluster, len(WORKERS))
    stack.callback(job.close)
    values = {"out": directory / "index.db", "corpus": corpus, "gate": directory / "gate"}
    settings = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    process = job.run(PIPELINE, *settings, "--spark-conf", f"spark.executor.cores={CORES}")
    survive(story, job, network, cluster)
    (directory / "gate").touch()
    story.say("the sources may end")
    status = process.wait(END_S)
    if status:
        raise TimeoutError(f"the job ended with status {status}\n{job.said()}")
    story.say("the job has ended; every row is compared")
    report = json.loads((directory / "report.json").read_text())
    for recovery in report["recoveries"]:
        print(f"{recovery['task']} on another host: {phases_of(recovery)}")
    return compare(directory / "index.db", expected(corpus))


def main() -> int:
    """Return 0 only if both hosts were lost, their tasks recovered, and no row is lost, doubled or contradicted."""
    parser = argparse.ArgumentParser(prog="python -m examples.hosts", description=__doc__.partition("\n")[0])
    parser.add_argument("--corpus", type=Path, default=Path(STANDARD_LIBRARY), help="directory with *.py files")
    parser.add_argument("--keep", type=Path, help="directory for everything, kept; otherwise a temporary one")
    options = parser.parse_args()
    lacking = missing()
    if lacking is not None:
        print(f"the demonstration on several hosts needs root on Linux: {lacking}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _interrupt)
    directory = (options.keep or Path(tempfile.mkdtemp(prefix="causal-demo-"))).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    counts = None
    try:
        with ExitStack() as stack:
            counts = demonstrate(directory, options.corpus, stack)
    except (RuntimeError, TimeoutError) as problem:
        print(f"{problem}\nlogs are in {directory}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; namespaces and processes are gone", file=sys.stderr)
        return 130
    finally:
        if options.keep is None and (counts is not None or sys.exc_info()[0] is None):
            shutil.rmtree(directory, ignore_errors=True)
    print(", ".join(f"{name} {value:,}" for name, value in counts.items()))
    return int(bool(counts["lost"] or counts["doubled"] or counts["contradicted"]))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
