"""Measures the dashboard: the time until its page is there, and the CPU time of watching.

`first_paint_ms` is from the start of `causal ui` until Chromium, which runs already, paints the page for the first
time; `shown_ms` until the graph is drawn.  Without Chromium both are until the page's model is answered, and the
settings say so.  `cores_at_200_tasks` is what `causal ui` takes while a page asks twice a second about a job of 200
tasks whose view changes with each question.  `watching_over_job` is the CPU time of `causal ui` ÷ that of all processes
of a job at full speed.
"""

from __future__ import annotations

import copy
import fcntl
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import browser, children
from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.harness.processes import of_job
from benchmarks.harness.runs import KEYED_COUNT, RunFailed
from benchmarks.harness.usage import cpu_s
from benchmarks.harness.watched import ready, watched
from causal.config import JobConfig
from causal.ids import OUTSIDE, ChannelId, TaskIndex, TaskName
from causal.topology import Channel, Task, Topology
from deploy.ui.admission import TOKEN
from deploy.ui.observed import CODE_LOOK_S
from standby.blueprint import Blueprint

EVERY_S = 0.5
"""The interval of the page's questions."""
WIDE = (10, 20)
"""Operators of the large job, and tasks of each."""
NARROW = (3, 2)
FILES = ("/", "/static/app.js", "/static/style.css", "/static/dom.js", "/static/graph.js", "/static/views.js")
START_WITHIN_S = 60.0
SHOWN = """const done = arguments[arguments.length - 1];
(function look() {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  if (!paint || !document.querySelector("main svg")) return requestAnimationFrame(look);
  done([performance.timeOrigin + paint.startTime, performance.timeOrigin + performance.now()]);
})();"""

View = dict[str, Any]
OPTIONS = (
    Option("rounds", 5, "measurements of CPU time"),
    Option("starts", 15, "starts of the dashboard"),
    Option("seconds", 20.0, "of watching in each round"),
)


class Watching:
    """A running `causal ui`, and a client that asks as its page does."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.url = process.stdout.readline().rpartition(" ")[2].strip()
        if not self.url:
            raise RunFailed("causal ui printed no address")
        self._pid = process.pid
        port, self._token = self.url.split(":")[2].split("/#")
        self._connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=START_WITHIN_S)

    def get(self, path: str) -> None:
        """Read an answer, which must be good."""
        self._connection.request("GET", path, headers={TOKEN: self._token})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RunFailed(f"{path}: {answer.status} {text[:200]!r}")

    def asked(self, seconds: float, before: Callable[[], None] = lambda: None) -> float:
        """CPU seconds of the dashboard while it is asked for this long; `before` is called before each question."""
        used_s, began_s, number = cpu_s(self._pid), time.monotonic(), 0
        while time.monotonic() < began_s + seconds:
            before()
            self.get("/api/job")
            number += 1
            time.sleep(max(0.0, began_s + number * EVERY_S - time.monotonic()))
        return cpu_s(self._pid) - used_s


@contextmanager
def dashboard(job: Path) -> Iterator[Watching]:
    """Yield a `causal ui` of a job."""
    command = [sys.executable, "-P", "-m", "deploy", "ui", "--state-dir", job.name, "--no-break"]
    env = {**os.environ, "PYTHONPATH": str(children.ROOT)}
    with children.started(command, stdout=subprocess.PIPE, text=True, cwd=job.parent, env=env) as process:
        yield Watching(process)


def enlarged(view: Mapping[str, Any], turn: int, operators: int, parallelism: int) -> View:
    """Return a view of this many tasks, each with the figures of a task of its kind; `turn` half seconds later."""
    kinds = [next(task for task in view["tasks"] if holds(task)) for holds in KINDS]
    tasks, wide = [], operators * parallelism
    for index in range(wide):
        kind = 0 if index < parallelism else 2 if index >= wide - parallelism else 1
        task = copy.deepcopy(kinds[kind])
        task |= {"task": f"op{index // parallelism}/{index % parallelism}", "slot": f"w{index}"}
        after = range(index // parallelism * parallelism + parallelism, wide)[:parallelism]
        grown = {name: count + 1000 * turn for name, count in task["figures"].items() if name in GROWING}
        task["figures"] |= {**grown, "sent_bytes_to": {str(other): 1000 * turn for other in after}}
        tasks.append(task)
    processes = [
        {**view["processes"][0], "slot": task["slot"], "task": task["task"], "state": "serving"} for task in tasks
    ]
    return {**view, "at_ns": view["at_ns"] + turn * 500_000_000, "tasks": tasks, "processes": processes, "ended": None}


KINDS: tuple[Callable[[Mapping[str, Any]], bool], ...] = (
    lambda task: bool(task["source"]),
    lambda task: not task["source"] and not task["sink"],
    lambda task: bool(task["sink"]),
)
GROWING = ("records_in", "records_out", "delivered_elements", "sent_bytes")


@contextmanager
def pretended(view: Mapping[str, Any], operators: int, parallelism: int) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Yield the directory of a job that seems to run, and what puts its next view there."""
    wide = operators * parallelism
    names = [f"op{index // parallelism}/{index % parallelism}" for index in range(wide)]
    ends = [(OUTSIDE, index) for index in range(parallelism)] + [
        (source, target)
        for source in range(wide)
        for target in range((source // parallelism + 1) * parallelism, wide)[:parallelism]
    ]
    ends += [(index, OUTSIDE) for index in range(wide - parallelism, wide)]
    tasks = [Task(TaskIndex(i), TaskName(name), (name.partition("/")[0],)) for i, name in enumerate(names)]
    channels = [Channel(ChannelId(i), TaskIndex(one), TaskIndex(other)) for i, (one, other) in enumerate(ends)]
    turns = iter(range(1, 1 << 30))
    with tempfile.TemporaryDirectory(prefix="causal-bench-") as place, ExitStack() as locks:
        job = Path(place) / "job"
        job.mkdir()
        JobConfig("r", "job", "job.py").save(job)
        Blueprint(Topology(tuple(tasks), tuple(channels))).save(job)
        lock = locks.enter_context(open(job / "lock", "w"))
        fcntl.flock(lock, fcntl.LOCK_EX)

        def put() -> None:
            (job / "status.new").write_text(json.dumps(enlarged(view, next(turns), operators, parallelism)))
            os.replace(job / "status.new", job / "status.json")

        put()
        yield job, put


def _cpu_of_watching(run: Measurement) -> View:
    """Watch a job at full speed; returns its last view."""
    with watched(KEYED_COUNT, {"count": 10**9}, ()) as job:
        state = job.out.parent / "job"
        job.until("all tasks run", ready, START_WITHIN_S)
        with dashboard(state) as watching:
            watching.asked(CODE_LOOK_S + 1)
            for number in run.rounds():
                pids = of_job(state)
                before_s = sum(map(cpu_s, pids))
                watching_s = watching.asked(run.options.seconds)
                run.add("watching_over_job", watching_s / (sum(map(cpu_s, pids)) - before_s))
                run.report(f"{number}: watching ÷ job {run.last('watching_over_job'):.4f}")
        return job.view()


def _cpu_of_many_tasks(run: Measurement, view: View) -> None:
    with pretended(view, *WIDE) as (job, put), dashboard(job) as watching:
        watching.asked(CODE_LOOK_S + 1, put)
        for number in run.rounds():
            run.add("cores_at_200_tasks", watching.asked(run.options.seconds, put) / run.options.seconds)
            run.report(f"{number}: {run.last('cores_at_200_tasks'):.4f} cores at 200 tasks")


def _starts(run: Measurement, view: View) -> str:
    """Start the dashboard repeatedly; returns what has shown its page."""
    with ExitStack() as up:
        place = up.enter_context(tempfile.TemporaryDirectory(prefix="causal-bench-"))
        job, _ = up.enter_context(pretended(view, *NARROW))
        driver = up.enter_context(browser.browsing(Path(place))) if browser.present() else None
        for number in range(1, run.options.starts + 1):
            if driver is not None:
                driver.get("about:blank")
            began_ms = time.time() * 1e3
            with dashboard(job) as watching:
                if driver is not None:
                    driver.get(watching.url)
                    paint_ms, shown_ms = driver.execute_async_script(SHOWN)
                else:
                    for path in (*FILES, "/api/job"):
                        watching.get(path)
                    paint_ms = shown_ms = time.time() * 1e3
            run.add_all("", {"first_paint_ms": paint_ms - began_ms, "shown_ms": shown_ms - began_ms})
            run.report(f"start {number}: first paint {run.last('first_paint_ms'):.0f} ms")
        return "no browser" if driver is None else f"Chromium {driver.capabilities['browserVersion']}"


def _measure(run: Measurement) -> dict[str, Any]:
    view = _cpu_of_watching(run)
    _cpu_of_many_tasks(run, view)
    return {"page": _starts(run, view)}


SETTINGS = {"questions_per_s": 1 / EVERY_S, "pipeline": KEYED_COUNT.name}
BENCHMARK = Benchmark("ui", OPTIONS, _measure, digits=4, digits_of={"_ms": 1}, settings=SETTINGS)
