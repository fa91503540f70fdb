"""PyFlink: DataStream API on a standalone cluster, Python in the JVM's own process (thread mode), heap state backend.

Thread mode and process mode with large bundles and a large state cache are alike in *count*; the defaults of process
mode are five times slower.  *failover*: one JobManager, a TaskManager for each of three stages, a spare one; failure
detection as fast as it goes without false alarms (heartbeat 250 ms, timeout 2 s, restart after 50 ms).
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.peers.programs import inputs

FILES = 2
UP_S, FIRST_S = 90.0, 120.0
COMMIT_LATE_S = 2.0
"""Time after the kill in which what a checkpoint covers may still be committed."""
_OPENED = (
    "java.lang java.net java.io java.nio sun.nio.ch java.lang.reflect java.text java.time java.util"
    " java.util.concurrent java.util.concurrent.atomic java.util.concurrent.locks"
)
FAST_DETECTION = {
    "heartbeat.interval": "250 ms",
    "heartbeat.timeout": "2000 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 1000,
    "restart-strategy.fixed-delay.delay": "50 ms",
}


def installed() -> Path:
    """Return the directory of Flink inside its wheel."""
    spec = importlib.util.find_spec("pyflink")
    if spec is None or spec.origin is None:
        raise RuntimeError("apache-flink is not installed in this environment")
    return Path(spec.origin).parent


class Cluster:
    """A JobManager and some TaskManagers as processes of their own."""

    def __init__(self, place: Path, workers: int, slots: int, more: dict[str, Any]) -> None:
        home, self._place = installed(), place
        self.ports = inputs.free_ports(2)
        settings = {
            "jobmanager.rpc.address": "127.0.0.1",
            "jobmanager.rpc.port": self.ports[0],
            "jobmanager.bind-host": "127.0.0.1",
            "jobmanager.memory.process.size": "1600m",
            "rest.address": "127.0.0.1",
            "rest.port": self.ports[1],
            "rest.bind-address": "127.0.0.1",
            "taskmanager.host": "127.0.0.1",
            "taskmanager.bind-host": "127.0.0.1",
            "taskmanager.memory.process.size": "2500m" if workers == 1 else "1728m",
            "taskmanager.numberOfTaskSlots": slots,
            "env.java.opts.all": " ".join(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED.split()),
            "env.log.dir": str(place / "log"),
            "env.pid.dir": str(place),
            "python.executable": sys.executable,
            "python.client.executable": sys.executable,
            "python.execution-mode": "thread",
            "execution.checkpointing.dir": f"file://{place}/checkpoints",
            **more,
        }
        shutil.copytree(home / "conf", place / "conf")
        (place / "conf" / "config.yaml").write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))
        path = os.pathsep.join([os.environ["PYTHONPATH"], str(home.parent)])  # thread mode does not see the environment
        self._environment = {
            **os.environ,
            "FLINK_CONF_DIR": str(place / "conf"),
            "FLINK_HOME": str(home),
            "JAVA_HOME": inputs.java_home(),
            "PYTHONPATH": path,
            "PEER_PLACE": str(place),
        }
        self._home, self._slots = home, workers * slots
        self._master = self._start("jobmanager.sh", "start-foreground")
        self.workers = {
            f"tm{number}": self._start(
                "taskmanager.sh", "start-foreground", "-D", f"taskmanager.resource-id=tm{number}"
            )
            for number in range(workers)
        }

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(self._home / "bin" / program), *arguments]
        with open(self._place / "cluster.log", "ab") as log:
            return subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def ask(self, path: str) -> Any:
        """Return what the REST interface answers."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[1]}{path}", timeout=5) as answer:
            return json.load(answer)

    def wait(self) -> None:
        """Wait until every slot is there."""
        until_s = time.time() + UP_S
        while time.time() < until_s:
            try:
                if self.ask("/overview")["slots-total"] >= self._slots:
                    return
            except (urllib.error.URLError, ConnectionError):
                pass  # it has only begun to start
            time.sleep(0.05)
        raise RuntimeError(f"the cluster was not up within {UP_S:g} s: {_blamed(self._place / 'cluster.log')}")

    def submit(self) -> subprocess.Popen[bytes]:
        """Run the job; the process ends with it."""
        job = Path(__file__).with_name("pyflink_job.py")
        return self._start("flink", "run", "-py", str(job))

    def worker_of(self, vertex: str) -> subprocess.Popen[bytes]:
        """Return the TaskManager that runs the operator of that name."""
        job = next(each["id"] for each in self.ask("/jobs")["jobs"] if each["status"] == "RUNNING")
        vertex_id = next(each["id"] for each in self.ask(f"/jobs/{job}")["vertices"] if vertex in each["name"])
        return self.workers[self.ask(f"/jobs/{job}/vertices/{vertex_id}")["subtasks"][0]["taskmanager-id"]]

    def end(self) -> None:
        """Kill all of it."""
        for process in (*self.workers.values(), self._master):
            process.kill()
            process.wait()


def _blamed(log: Path) -> str:
    """Return the last line that names an error, else the last one."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    wrong = [line for line in lines if "Error" in line or "Exception" in line]
    return (wrong or lines or ["it said nothing"])[-1]


def _failover(cluster: Cluster, client: subprocess.Popen[bytes], place: Path, kill_after_s: float) -> dict[str, Any]:
    committed = inputs.Visible(place / "out", "*/part-*")
    committed.start()
    until_s = time.time() + FIRST_S
    while not committed.since_s:
        if client.poll() is not None or time.time() > until_s:
            raise RuntimeError(f"no output came: {_blamed(place / 'cluster.log')}")
        time.sleep(inputs.LOOK_S)
    time.sleep(kill_after_s)
    victim = cluster.worker_of("stateful")
    killed_s = time.time()
    victim.send_signal(signal.SIGKILL)
    client.wait()
    committed.end()
    with open(place / "seen-committed.log", "w") as seen:
        for path, when_s in committed.since_s.items():
            seen.writelines(f"{when_s:.6f} {line}\n" for line in Path(path).read_text().splitlines())
    return {
        "killed_s": killed_s,
        "killed": "the TaskManager of the counting stage",
        "killed_keys": None,
        "late_s": COMMIT_LATE_S,
    }


def _paced_index(client: subprocess.Popen[bytes], place: Path) -> None:
    """Record when the files of each checkpoint appear, until the job has ended."""
    committed = inputs.Visible(place / "out", "*/part-*")
    committed.start()
    client.wait()
    committed.end()
    inputs.put(place / "visible.json", committed.since_s)


def main() -> int:
    """Run one workload."""
    workload, place = sys.argv[1], Path(sys.argv[2])
    asked = inputs.asked(place)
    if workload == "count":
        inputs.write_csv(place / "csv", asked["records"], FILES)
    apart = workload == "failover"
    more: dict[str, Any] = {**FAST_DETECTION} if apart else {}
    if workload in ("failover", "paced_index"):
        more["python.fn-execution.bundle.time"] = 10
    outcome: dict[str, Any] = {"started_s": time.time()}
    cluster = Cluster(place, 4 if apart else 1, 1 if apart else inputs.PARTITIONS, more)
    cluster.wait()
    client = cluster.submit()
    if apart:
        outcome |= _failover(cluster, client, place, asked["kill_after_s"])
    elif workload == "paced_index":
        _paced_index(client, place)
    status = client.wait()
    cluster.end()
    if status:
        print(f"the job ended with status {status}: {_blamed(place / 'cluster.log')}", file=sys.stderr)
        return 1
    outcome |= {"guarantee": "exactly once, visible when a checkpoint commits it", "per_record": True}
    inputs.finished(place, "apache-flink", outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
