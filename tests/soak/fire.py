"""The faults: what is thrown at a running job, drawn by the seed, and how often each was."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.harness.processes import kill
from tests.soak.cut import Link, cut, links
from tests.soak.disk import SmallDisk
from tests.soak.leaks import runtime_of
from tests.soak.tortured import TortureRun

TASKS_MAX = 4
"""The most tasks that an operator is given."""

UP_S = 60.0
"""The time that a resumed job may take until all of its tasks run."""

RESUME_AGAIN = 0.35
"""The chance that everything dies again before a resumed job is up."""

LONG_S = 3.2
"""A hang that is longer than `heartbeat_timeout_ms`."""


@dataclass(slots=True)
class Fire:
    """Throws faults at one job, one per call of `throw`.

    Args:
        disks: small disks under the job, to be filled.
        changes_share: how often the job is changed, where a task is killed 8 times.
    """

    run: TortureRun
    rng: Random
    disks: Sequence[SmallDisk]
    changes_share: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    """Processes that got SIGKILL while they lived, by what was aimed at."""
    faults: Counter[str] = field(default_factory=Counter)
    """Faults of every other kind."""
    unavailable: set[str] = field(default_factory=set)
    """Faults that this machine does not permit."""
    log: list[str] = field(default_factory=list)
    changes: Counter[str] = field(default_factory=Counter)
    """Commands that change the job, by their kind and outcome."""
    _change: str = ""
    """The kind of the change that is under way."""
    _asleep: list[tuple[float, int]] = field(default_factory=list)
    _full: list[tuple[float, SmallDisk]] = field(default_factory=list)
    _began_s: float = field(default_factory=time.monotonic)

    def throw(self) -> None:
        """Throw one fault."""
        faults = {**_FAULTS, "change the job": (self.changes_share, Fire._change_job)}
        [name] = self.rng.choices(list(faults), [weight for weight, _ in faults.values()])
        self._note(name)
        faults[name][1](self)

    def settle(self, everything: bool = False) -> None:
        """Wake what has slept long enough, make room on disks that have been full long enough."""
        now_s = time.monotonic()
        for entry in [entry for entry in self._asleep if everything or entry[0] <= now_s]:
            self._asleep.remove(entry)
            kill(entry[1], signal.SIGCONT)
        for full in [entry for entry in self._full if everything or entry[0] <= now_s]:
            self._full.remove(full)
            full[1].make_room()
            self._note(f"room on {full[1].path.name}")
        if self._change and (status := self.run.change_status()) is not None:
            self._end_change({0: "committed", 1: "failed", 2: "refused"}.get(status, f"ended with status {status}"))
        elif self._change and everything:
            self.run.end_change()
            self._end_change("killed")

    def _note(self, line: str) -> None:
        self.log.append(f"{time.monotonic() - self._began_s:8.3f}  {line}")

    def _end_change(self, outcome: str) -> None:
        self.changes[f"{self._change}: {outcome}"] += 1
        self._note(f"  {self._change}: {outcome}")
        self._change = ""

    # -- who is where --------------------------------------------------------------------------------

    def _tasks(self) -> dict[str, int]:
        """Task → its process, as far as the view and the machine agree."""
        return self._holding("task")

    def _standbys(self) -> dict[str, int]:
        """Processes that hold no task, by slot."""
        serving = set(self._tasks().values())
        return {slot: pid for slot, pid in self.run.workers().items() if pid not in serving}

    def _holding(self, what: str) -> dict[str, int]:
        view, alive = self.run.view(), self.run.workers()
        processes: list[Any] = view["processes"] if view is not None else []
        return {p[what]: p["pid"] for p in processes if p[what] and alive.get(p["slot"]) == p["pid"]}

    def _one(self, candidates: dict[str, int]) -> tuple[str, int] | None:
        return self.rng.choice(sorted(candidates.items())) if candidates else None

    def _kill(self, aim: str, *victims: tuple[str, int]) -> None:
        for name, pid in victims:
            killed = kill(pid)
            self.kills[aim] += killed
            self._note(f"  kill {name} (pid {pid})" + ("" if killed else ": gone already"))

    # -- kills ---------------------------------------------------------------------------------------

    def _kill_task(self) -> None:
        if victim := self._one(self._tasks()):
            self._kill("task", victim)

    def _kill_standby(self) -> None:
        if victim := self._one(self._standbys()):
            self._kill("standby", victim)

    def _kill_companion(self) -> None:
        if victim := self._one(self.run.companions()):
            self._kill("companion", victim)

    def _kill_server(self, name: str) -> None:
        if pid := self.run.servers().get(name):
            self._kill(name, (name, pid))

    def _kill_several(self) -> None:
        tasks = sorted(self._tasks().items())
        if tasks:
            self._kill("several tasks at the same time", *self.rng.sample(tasks, self.rng.randint(1, len(tasks))))

    def _kill_with_standby(self) -> None:
        """A task and the standby that would take over: one of them a moment before the other, or after."""
        ready = self._holding("standby_of")
        tasks = self._tasks()
        both = sorted(tasks.keys() & ready.keys())
        if both:
            task = self.rng.choice(both)
            pair = [(task, tasks[task]), (f"standby of {task}", ready[task])]
            self.rng.shuffle(pair)
            self._kill("task with its standby", pair[0])
            time.sleep(self.rng.choice((0.0, 0.005, 0.02, 0.06)))
            self._kill("task with its standby", pair[1])

    def _kill_recovering(self) -> None:
        """A task, and soon after whatever has taken over, or a neighbour, or a process that decides about it."""
        tasks, ready = self._tasks(), self._holding("standby_of")
        if not tasks:
            return
        task, pid = self.rng.choice(sorted(tasks.items()))
        self._kill("task", (task, pid))
        time.sleep(self.rng.uniform(0.0, 0.15))
        others = sorted((name, other) for name, other in tasks.items() if name != task)
        successors = [(f"successor of {task}", ready[task])] if task in ready else []
        deciders = sorted(self.run.servers().items())
        choices = [group for group in (others, successors, successors, deciders) if group]
        if choices:
            self._kill("during a recovery", self.rng.choice(self.rng.choice(choices)))

    def _kill_any_mix(self) -> None:
        processes = sorted({**self.run.servers(), **self.run.workers()}.items())
        if processes:
            self._kill(
                "any processes at the same time",
                *self.rng.sample(processes, self.rng.randint(1, min(5, len(processes)))),
            )

    def _kill_root(self) -> None:
        if self.run.status() is None:
            self._resting()
            self.kills["causal run, then --resume"] += self.run.kill_root()
            self._resume()

    def _kill_everything(self) -> None:
        if self.run.status() is None:
            self._resting()
            self.kills["every process, then --resume"] += self.run.kill_all()
            self._resume()

    def _resting(self) -> None:
        """A disk that is full would only make the resumption refuse in one line."""
        self.settle(everything=True)

    def _resume(self) -> None:
        while self.rng.random() < RESUME_AGAIN:  # before it has come up, at any step of its coming up
            self.faults["resumptions"] += 1
            self.run.resume()
            time.sleep(self.rng.uniform(0.0, 1.5))
            self.kills["every process while it resumes"] += self.run.kill_all()
            self._note("  kill every process while it resumes")
        self.faults["resumptions"] += 1
        (self.run.state / "status.json").unlink(missing_ok=True)  # the next file is of the new life
        self.run.resume()
        deadline = time.monotonic() + UP_S
        while self.run.status() is None and not self.run.up() and time.monotonic() < deadline:
            time.sleep(0.05)

    # -- the rest ------------------------------------------------------------------------------------

    def _stop(self, names: dict[str, int], seconds: float, kind: str) -> None:
        if victim := self._one(names):
            self._note(f"  stop {victim[0]} (pid {victim[1]}) for {seconds:.2f} s")
            if kill(victim[1], signal.SIGSTOP):
                self.faults[kind] += 1
                self._asleep.append((time.monotonic() + seconds, victim[1]))

    def _stop_briefly(self) -> None:
        names = {**self._tasks(), **self._standbys(), **self.run.servers()}
        self._stop(names, self.rng.uniform(0.05, 1.2), "short hangs")

    def _stop_long(self) -> None:
        names = {**self._tasks(), **self._standbys()}
        self._stop(names, LONG_S, "long hangs")

    def _cut(self) -> None:
        runtime = runtime_of(self.run.state)
        victim = self._one({**self._tasks(), **self._standbys()})
        if victim is None or runtime is None:
            return
        try:
            connections = links(victim[1], runtime)
        except PermissionError as problem:
            self.unavailable.add(f"cut connections: {problem.strerror}")
            return
        for link in self.rng.sample(connections, self.rng.randint(1, len(connections))) if connections else []:
            self._cut_one(victim[0], link)

    def _cut_one(self, name: str, link: Link) -> None:
        kind = "control" if link.control else "tcp data" if link.tcp else "ipc data"
        if cut(link):
            self.faults[f"{kind} connections cut"] += 1
            self._note(f"  cut a {kind} connection of {name}")

    def _kill_with_cut(self) -> None:
        """A task dies in the moment in which others are cut off from it, from each other and from the supervisor."""
        tasks, runtime = sorted(self._tasks().items()), runtime_of(self.run.state)
        if len(tasks) < 2 or runtime is None:
            return
        dying, *others = self.rng.sample(tasks, self.rng.randint(2, min(4, len(tasks))))
        try:
            cuts = [(name, link) for name, pid in others for link in links(pid, runtime)]
        except PermissionError as problem:
            self.unavailable.add(f"cut connections: {problem.strerror}")
            return
        before = self.rng.random() < 0.5
        if before:
            self._kill("task, others being cut off", dying)
        for name, link in cuts:
            self._cut_one(name, link)
        if not before:
            self._kill("task, others being cut off", dying)

    def _change_job(self) -> None:
        """Begin a change of the job; the faults that follow hit it at any of its steps."""
        if self._change or not self.run.up():
            return
        operator = self.rng.choice(["", *self.run.target.rescaled])
        if operator:
            self._change, words = "rescale", ("rescale", f"{operator}={self.rng.randint(1, TASKS_MAX)}")
        else:
            with self.run.pipeline.open("a") as code:
                code.write(f"\nCHANGED = {sum(self.changes.values())}\n")
            self._change, words = "upgrade", ("upgrade", str(self.run.pipeline))
        self._note(f"  causal {' '.join(words)}")
        self.run.begin_change(*words)

    def _fill(self) -> None:
        free = [disk for disk in self.disks if disk not in [full for _, full in self._full]]
        if free:
            disk, seconds = self.rng.choice(free), self.rng.choice((0.3, 1.0, 2.5))
            disk.fill()
            self.faults[f"filled disk of {disk.path.name}"] += 1
            self._note(f"  full: {disk.path.name} for {seconds} s")
            self._full.append((time.monotonic() + seconds, disk))


def _killing(name: str) -> Callable[[Fire], None]:
    return lambda fire: fire._kill_server(name)


_FAULTS: dict[str, tuple[float, Callable[[Fire], None]]] = {
    "kill a task": (8, Fire._kill_task),
    "kill a standby": (2, Fire._kill_standby),
    "kill a companion": (0.5, Fire._kill_companion),
    "kill the supervisor": (1.5, _killing("supervisor")),
    "kill the agent": (1.5, _killing("agent")),
    "kill several tasks": (2.5, Fire._kill_several),
    "kill a task with its standby": (2, Fire._kill_with_standby),
    "kill during a recovery": (4, Fire._kill_recovering),
    "kill any processes": (2, Fire._kill_any_mix),
    "kill causal run": (0.4, Fire._kill_root),
    "kill everything": (0.6, Fire._kill_everything),
    "stop briefly": (2, Fire._stop_briefly),
    "stop for long": (0.7, Fire._stop_long),
    "cut connections": (3, Fire._cut),
    "kill a task and cut others off": (2, Fire._kill_with_cut),
    "fill a disk": (1, Fire._fill),
}
"""Name → how often it is drawn, and what it does."""


def disks(directory: Path, size_bytes: int) -> tuple[list[SmallDisk], str]:
    """Mount small disks below `directory` for a job's state and its output; returns them, or why there are none."""
    mounted: list[SmallDisk] = []
    try:
        for name in ("state", "out"):
            mounted.append(SmallDisk(directory / name, size_bytes))
    except PermissionError as problem:
        return mounted, str(problem.strerror)
    return mounted, ""
