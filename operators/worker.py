"""A worker process: a standby that holds a task's state, and the task itself once it is promoted.

    python -m operators.worker JOB_DIRECTORY SLOT

It speaks the control plane of `docs/design/0001-foundation.md` with the supervisor and goes on without it.
"""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import zmq

from causal.config import JobConfig
from causal.errors import (
    CausalError,
    CorruptData,
    Fenced,
    InvariantViolation,
    Lost,
    OperatorFailed,
    PeerViolation,
    PipelineError,
    ReplayDivergence,
    invariant,
)  # fmt: skip
from causal.events import CheckpointAsked, CheckpointCompleted, PeerAt, PeerDown
from causal.ids import OUTSIDE, TaskIndex
from causal.ports import SinkStore
from causal.shell.clock import RealLive, monotonic_ns
from causal.shell.disk import Disk
from causal.shell.driver import Reader, TaskDriver
from causal.shell.transport import Transport
from causal.task import TaskProtocol
from causal.values import decode, encode
from operators.image import Image
from operators.loading import load
from operators.plan import plan

DEFINITE = (OperatorFailed, ReplayDivergence, Lost, CorruptData, PipelineError, InvariantViolation)
"""Errors after which another try would fail again."""
ABANDONED_AFTER_CHECKS = 3
CHECK_ROOT_NS = 3_000_000_000
GC_THRESHOLD = 50_000


class Worker:
    """One process: sockets from the first moment, a task when told.

    State: `following` while it is a standby, `driver` once promoted; never both.
    """

    def __init__(self, job_directory: Path, slot: str) -> None:
        self.slot = slot
        self.directory = job_directory
        self.config = JobConfig.load(job_directory)
        self.plan = plan(load(Path(self.config.pipeline), self.config.settings), self.config)
        runtime = (job_directory / "runtime").read_text().strip()
        self.context: zmq.Context[Any] = zmq.Context(io_threads=1)
        self.poller = zmq.Poller()
        bind = "tcp://127.0.0.1:*" if self.config.transport == "tcp" else f"ipc://{runtime}/{slot}"
        self.transport = Transport(self.context, bind, self.poller)
        self.control = self.context.socket(zmq.DEALER)
        self.control.linger = 500
        self.control.setsockopt(zmq.IDENTITY, slot.encode())
        self.control.setsockopt(zmq.RECONNECT_IVL, 20)
        self.control.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
        self.control.connect(f"ipc://{runtime}/supervisor")
        self.poller.register(self.control, zmq.POLLIN)
        self.following: Image | None = None
        self.driver: TaskDriver | None = None
        self.disk: Disk | None = None
        self.task: int | None = None
        self.incarnation = 0
        self.acked: list[Any] | None = None
        self.peers: dict[str, tuple[str, int]] = {}
        self.beat_due_ns = 0
        self.root_check_due_ns = 0
        self.root_missing = 0
        self.stopping = False

    # -- control plane -------------------------------------------------------------------------------

    def tell(self, kind: str, facts: dict[str, Any]) -> None:
        message = {"kind": kind, "slot": self.slot, **facts}
        try:
            self.control.send(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return  # level-triggered: the next beat says it again

    def beat(self) -> None:
        """Say all that a supervisor needs to know that has just started."""
        self.beat_due_ns = monotonic_ns() + self.config.heartbeat_ms * 1_000_000
        task = None if self.task is None else self.plan.topology.tasks[self.task].name
        facts: dict[str, Any] = {
            "pid": os.getpid(),
            "endpoint": self.transport.endpoint,
            "task": task if self.driver is not None else None,
            "incarnation": self.incarnation,
            "state": "standby",
            "epoch": 0,
            "acked": self.acked,
            "followed": self.following.cut.epoch if self.following is not None else None,
            "counters": {},
            "first_record_ns": None,
            "last_output_ns": None,
        }
        if self.driver is not None:
            protocol = self.driver.task
            facts["state"] = "finished" if protocol.reported_finished else protocol.recovery.state.value
            facts["epoch"] = protocol.schedule.epoch
            facts["counters"] = self.driver.counters()
            facts["first_record_ns"] = self.driver.first_record_ns or None
            facts["last_output_ns"] = self.driver.last_output_ns or None
        self.tell("beat", facts)

    def report(self, kind: str, facts: dict[str, Any]) -> None:
        """What the driver has to say: a phase, a snapshot, or that it waits for the outside."""
        if kind == "waiting":
            if facts["tried"] == 1:
                print(f"trying again: {facts['problem']}", file=sys.stderr, flush=True)
            if monotonic_ns() >= self.beat_due_ns:
                self.beat()
            return
        invariant(self.task is not None, "a driver runs a task")
        name = self.plan.topology.tasks[self.task].name  # type: ignore[index]
        if kind == "snapshot":
            self.acked = [facts["epoch"], facts["files"]]
        self.tell(kind, {"task": name, "incarnation": self.incarnation, **facts})
        if kind == "phase":
            self.beat_due_ns = 0

    def obey(self) -> None:
        """Take what the supervisor says; what makes no sense here is ignored, for it may be said twice."""
        while True:
            try:
                told = decode(self.control.recv(zmq.NOBLOCK))
            except zmq.Again:
                return
            except PeerViolation as problem:
                print(f"dropped a control message: {problem}", file=sys.stderr, flush=True)
                continue
            verb = _VERBS.get(str(told.get("kind"))) if type(told) is dict else None
            if verb is not None:
                verb(self, told)

    def _follow(self, told: dict[str, Any]) -> None:
        if self.driver is not None:
            return
        task = self._index(told["task"])
        if self.following is None or self.following.task != task:
            self.following = Image(self.plan, task, self.directory)
        self.task = task
        self.following.load([tuple(file) for file in told["files"]])
        gc.freeze()
        self.beat()

    def _promote(self, told: dict[str, Any]) -> None:
        if self.driver is not None:
            return
        task = self._index(told["task"])
        image = self.following if self.following is not None and self.following.task == task else None
        # From here on it speaks as that task: what keeps it from being it is what keeps the task from going on.
        self.task, self.incarnation = task, told["incarnation"]
        image = image or Image(self.plan, task, self.directory)
        image.load([tuple(file) for file in told["files"]])
        invariant(image.cut.epoch == told["epoch"], "the files hold the epoch that was told", told=told["epoch"])
        self.following = None
        if image.files:
            self.acked = [image.cut.epoch, [list(file) for file in image.files]]
        self.driver = self._drive(image)
        for name, (endpoint, incarnation) in told["peers"].items():
            self._peer({"task": name, "endpoint": endpoint, "incarnation": incarnation})
        self.report("phase", {"phase": "promoted", "at_ns": monotonic_ns(), "detail": 0})
        self.driver.start()
        self.beat()

    def _drive(self, image: Image) -> TaskDriver:
        topology, task = self.plan.topology, TaskIndex(image.task)
        protocol = TaskProtocol(
            topology, task, self.incarnation, self.config, image.chain, RealLive(), image.cut, image.files,
            lambda line: print(line, file=sys.stderr, flush=True),
        )  # fmt: skip
        name = topology.tasks[task].name
        spill = self.directory / "spill" / f"{name}-{self.incarnation}"
        self.disk = Disk(self.directory, name, self.incarnation, spill)
        self.poller.register(self.disk.wake, zmq.POLLIN)
        stores: dict[int, SinkStore] = {
            c.id: self.plan.store(c, self.directory) for c in topology.outputs(task) if c.target == OUTSIDE
        }
        began_ns = self._began_ns()
        readers: dict[int, Reader] = {
            c.id: self.plan.reader(c, self.directory, began_ns) for c in topology.inputs(task) if c.source == OUTSIDE
        }
        return TaskDriver(protocol, self.config.run, self.transport, self.disk, stores, readers, self.report)

    def _began_ns(self) -> int:
        """When the job began to read, in monotonic time: written by whoever is first."""
        path = self.directory / "began"
        try:
            with open(path, "x") as file:
                file.write(str(monotonic_ns()))
        except FileExistsError:
            pass
        for _ in range(100):
            text = path.read_text()
            if text:
                return min(int(text), monotonic_ns())
            time.sleep(0.001)
        return monotonic_ns()

    def _peer(self, told: dict[str, Any]) -> None:
        name, where = told["task"], (told["endpoint"], told["incarnation"])
        if self.driver is None or self.peers.get(name) == where:
            return
        self.peers[name] = where
        index = self._index(name)
        if index in self.plan.topology.downstream(TaskIndex(self.task or 0)):
            self.transport.dial(index, told["endpoint"])
        self.driver.feed(PeerAt(index, told["incarnation"], told["endpoint"].startswith("tcp")))

    def _peer_down(self, told: dict[str, Any]) -> None:
        if self.driver is not None:
            self.driver.feed(PeerDown(self._index(told["task"]), told["incarnation"]))

    def _checkpoint(self, told: dict[str, Any]) -> None:
        if self.driver is not None:
            self.driver.feed(CheckpointAsked(told["epoch"]))

    def _completed(self, told: dict[str, Any]) -> None:
        if self.driver is not None:
            self.driver.feed(CheckpointCompleted(told["epoch"]))

    def _stop(self, told: dict[str, Any]) -> None:
        self.stopping = True

    def _index(self, name: str) -> int:
        task = self.plan.topology.named(name)
        if task is None:
            raise PipelineError(f"the supervisor speaks of task {name!r}, which this pipeline does not have")
        return task.index

    # -- the loop ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until told to stop, or until nobody is left to tell."""
        self.beat()
        while not self.stopping:
            wait_ms = self.driver.wait_ms() if self.driver is not None else 1000
            until_beat_ms = max(0, (self.beat_due_ns - monotonic_ns()) // 1_000_000)
            ready = dict(self.poller.poll(min(wait_ms, until_beat_ms)))
            if self.control in ready:
                self.obey()
            if self.driver is not None:
                self.driver.work(ready)
            elif ready:
                for _ in self.transport.receive(ready):
                    pass  # nobody is promoted here: upstream says HELLO again
            now_ns = monotonic_ns()
            if now_ns >= self.beat_due_ns:
                self.beat()
            if now_ns >= self.root_check_due_ns:
                self._check_root(now_ns)

    def _check_root(self, now_ns: int) -> None:
        """End when `causal run` has been gone for a while: it holds the lock of the job as long as it lives."""
        self.root_check_due_ns = now_ns + CHECK_ROOT_NS
        try:
            with open(self.directory / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            self.root_missing = 0
            return
        except FileNotFoundError:
            pass
        self.root_missing += 1
        if self.root_missing >= ABANDONED_AFTER_CHECKS:
            print("the job's root process is gone: ending", file=sys.stderr, flush=True)
            self.stopping = True

    def close(self) -> None:
        if self.driver is not None:
            self.driver.close()
        self.transport.close()
        self.control.close()
        self.context.term()


_VERBS = {
    "follow": Worker._follow,
    "promote": Worker._promote,
    "peer": Worker._peer,
    "peer_down": Worker._peer_down,
    "checkpoint": Worker._checkpoint,
    "completed": Worker._completed,
    "stop": Worker._stop,
}


def main() -> int:
    """Exit status 0: told to stop, or fenced; 1: the task failed and has said so."""
    directory, slot = Path(sys.argv[1]), sys.argv[2]
    gc.set_threshold(GC_THRESHOLD, 20, 100)
    worker = Worker(directory, slot)
    signal.signal(signal.SIGTERM, lambda *_: setattr(worker, "stopping", True))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        worker.run()
    except Fenced as problem:
        print(f"fenced: {problem}", file=sys.stderr, flush=True)
    except CausalError as problem:
        definite = isinstance(problem, DEFINITE)
        name = "standby" if worker.task is None else worker.plan.topology.tasks[worker.task].name
        print(f"{name}: {type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
        task = None if worker.task is None else name
        facts = {"task": task, "incarnation": worker.incarnation, "error": type(problem).__name__}
        worker.tell("failed", {**facts, "message": str(problem), "definite": definite})
        return 1
    finally:
        worker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
