"""A worker process: a standby that holds a task's state, and the task itself once it is promoted.

    python -m operators.worker JOB_DIRECTORY SLOT

Sockets, files and the clock around `operators.membership`, which decides, and `causal.shell.driver`, which
runs the task.  It goes on without a supervisor.
"""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq

from causal.config import JobConfig
from causal.dissemination import NO_KNOWLEDGE, Knowledge
from causal.errors import (
    CausalError,
    CorruptData,
    Fenced,
    InvariantViolation,
    Lost,
    OperatorFailed,
    OutOfPatience,
    PeerViolation,
    PipelineError,
    ReplayDivergence,
    invariant,
)  # fmt: skip
from causal.ids import OUTSIDE, TaskIndex
from causal.ports import SinkStore
from causal.shell.asking import Asking
from causal.shell.clock import RealLive, monotonic_ns
from causal.shell.disk import Disk
from causal.shell.driver import Reader, TaskDriver
from causal.shell.lifeline import hold
from causal.shell.memory import give_large_blocks_back
from causal.shell.transport import Transport
from causal.task import TaskProtocol
from causal.values import decode, encode
from operators.asking import askers_of
from operators.capture.install import install
from operators.disk import located
from operators.image import Image
from operators.loading import load
from operators.membership import (
    Begin,
    Dial,
    Due,
    End,
    Feed,
    Input,
    Load,
    Loaded,
    Membership,
    Reported,
    Start,
    Tell,
    Told,
    Vitals,
)
from operators.plan import plan
from operators.rehearsals import Rehearsals

DEFINITE = (OperatorFailed, ReplayDivergence, Lost, CorruptData, PipelineError, InvariantViolation, OutOfPatience)
"""Errors after which another try would fail again."""
ABANDONED_AFTER_CHECKS = 3
CHECK_ROOT_NS = 3_000_000_000
GC_THRESHOLD = 50_000
LINGER_MS = 500


class Worker:
    """One process: sockets from the first moment, a task when told.

    State: `following` while it is a standby, `driver` once promoted; never both.
    """

    def __init__(self, job_directory: Path, slot: str) -> None:
        self.slot = slot
        self.directory = job_directory
        self.config = located(JobConfig.load(job_directory), job_directory)
        install(self.config.hidden_nondeterminism)  # before the pipeline's file and what it imports are loaded
        self.plan = plan(load(Path(self.config.pipeline), self.config.settings), self.config)
        runtime = (job_directory / "runtime").read_text().strip()
        self.context: zmq.Context[Any] = zmq.Context(io_threads=1)
        self.poller = zmq.Poller()
        bind = "tcp://127.0.0.1:*" if self.config.transport == "tcp" else f"ipc://{runtime}/{slot}"
        self.transport = Transport(self.context, bind, self.poller)
        self.control = self.context.socket(zmq.DEALER)
        self.control.linger = LINGER_MS
        self.control.setsockopt(zmq.IDENTITY, slot.encode())
        self.control.setsockopt(zmq.RECONNECT_IVL, 20)
        self.control.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
        self.control.connect(f"ipc://{runtime}/supervisor")
        self.poller.register(self.control, zmq.POLLIN)
        self.membership = Membership(
            slot, os.getpid(), self.transport.endpoint, self.plan.topology, self.config.heartbeat_ms, self.vitals
        )
        self.following: Image | None = None
        self.rehearsals = Rehearsals(self.plan, self.config, job_directory, say)
        self.driver: TaskDriver | None = None
        self.disk: Disk | None = None
        self.asking = Asking({})
        self.root_check_due_ns = 0
        self.root_missing = 0
        self.stopping = False

    # -- control plane -------------------------------------------------------------------------------

    def handle(self, event: Input) -> None:
        """Have the membership take a step, and do what it says."""
        for act in self.membership.handle(event, monotonic_ns()):
            _ACTS[type(act)](self, act)

    def tell(self, act: Tell) -> None:
        message = {"kind": act.kind, "slot": self.slot, **act.facts}
        try:
            self.control.send(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return  # level-triggered: the next beat says it again

    def vitals(self) -> Vitals:
        """For a beat."""
        checked = (self.rehearsals.checked, self.rehearsals.problem)
        if self.driver is None:
            return Vitals(checked=checked)
        protocol = self.driver.task
        return Vitals(
            self.driver.word,
            protocol.schedule.epoch,
            self.driver.counters(),
            self.driver.first_record_ns or None,
            self.driver.last_output_ns or None,
            protocol.inquiry.rollback.number,
            [list(each) for each in protocol.lost],
            protocol.channels.committed,
            checked,
            self.driver.waiting,
        )

    def report(self, kind: str, facts: dict[str, Any]) -> None:
        """What the driver has to say.

        While its thread waits for a store, another one calls this: that a task waits for the outside, or is stuck.
        """
        if kind == "stuck":
            self.fail("OutOfPatience", facts["message"], True)
            self.control.close()
            time.sleep(LINGER_MS / 1000)  # a store that does not come back would keep an orderly end from coming
            os._exit(1)
        if kind != "waiting":
            self.handle(Reported(kind, facts))
            return
        if "line" in facts:
            say(facts["line"])
            self.membership.beat_due_ns = 0
        self.handle(Due())

    def fail(self, error: str, message: str, definite: bool) -> None:
        """Say that the task cannot go on."""
        task = self.membership.name
        say(f"{task or 'standby'}: {error}: {message}")
        facts = {"task": task, "incarnation": self.membership.incarnation, "error": error}
        self.tell(Tell("failed", {**facts, "message": message, "definite": definite}))

    def obey(self) -> None:
        """Take what the supervisor says."""
        while True:
            try:
                told = decode(self.control.recv(zmq.NOBLOCK))
            except zmq.Again:
                return
            except PeerViolation as problem:
                say(f"dropped a control message: {problem}")
                continue
            if type(told) is dict:
                self.handle(Told(told))

    def load(self, act: Load) -> None:
        if self.following is None or self.following.task != act.task:
            self.following = Image(self.plan, act.task, self.directory)
        if self.config.check:
            self.rehearsals.follow(self.following, act.files)
        self.following.load(act.files)
        gc.freeze()
        self.handle(Loaded(self.following.cut.epoch))

    def begin(self, act: Begin) -> None:
        """Become the task, or go back in place."""
        image = self.following if self.following is not None and self.following.task == act.task else None
        image = image or Image(self.plan, act.task, self.directory)
        image.load(act.files)
        invariant(image.cut.epoch == act.epoch, "the files hold the epoch that was told", told=act.epoch)
        self.following = None
        retained = NO_KNOWLEDGE
        if self.driver is not None:
            retained = self.driver.task.retained(act.rollback)
            self.driver.close()
        self.driver = self._drive(image, act, retained)

    def _drive(self, image: Image, act: Begin, retained: Knowledge) -> TaskDriver:
        topology, task = self.plan.topology, TaskIndex(act.task)
        protocol = TaskProtocol(
            topology, task, act.incarnation, self.config, image.chain, RealLive(), image.cut, image.files,
            say, act.rollback, retained,
        )  # fmt: skip
        name = topology.tasks[task].name
        spill = self.directory / "spill" / f"{name}-{act.incarnation}"
        for old in spill.parent.glob(f"{spill.name.rpartition('-')[0]}-*"):
            if old != spill:
                shutil.rmtree(old, ignore_errors=True)  # of a process that was killed; nobody reads it any more
        if self.disk is not None:
            self.poller.unregister(self.disk.wake)
        self.disk = Disk(self.directory, name, act.incarnation, spill, self.config.durability == "os")
        self.poller.register(self.disk.wake, zmq.POLLIN)
        if self.asking.wake >= 0:
            self.poller.unregister(self.asking.wake)
        self.asking = Asking(askers_of(image.chain))
        if self.asking.wake >= 0:
            self.poller.register(self.asking.wake, zmq.POLLIN)
        stores: dict[int, SinkStore] = {
            c.id: self.plan.store(c, self.directory) for c in topology.outputs(task) if c.target == OUTSIDE
        }
        began_ns = self._began_ns()
        readers: dict[int, Reader] = {
            c.id: self.plan.reader(c, self.directory, began_ns) for c in topology.inputs(task) if c.source == OUTSIDE
        }
        return TaskDriver(
            protocol, self.config.run, self.transport, self.disk, stores, readers, self.report, self.asking,
            self.config.sink_patience_s,
        )  # fmt: skip

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

    def start(self, act: Start) -> None:
        invariant(self.driver is not None, "a task begins before it starts", slot=self.slot)
        self.driver.start()  # type: ignore[union-attr]
        self.handle(Due())

    def dial(self, act: Dial) -> None:
        self.transport.dial(act.task, act.endpoint)

    def feed(self, act: Feed) -> None:
        if self.driver is not None:
            self.driver.feed(act.event)

    def end(self, act: End) -> None:
        self.stopping = True

    # -- the loop ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until told to stop, or until nobody is left to tell."""
        while not self.stopping:
            self.handle(Due())
            wait_ms = self.driver.wait_ms() if self.driver is not None else 1000
            until_beat_ms = max(0, (self.membership.beat_due_ns - monotonic_ns()) // 1_000_000)
            ready = dict(self.poller.poll(min(wait_ms, until_beat_ms)))
            if self.control in ready:
                self.obey()
            if self.driver is not None:
                self.driver.work(ready)
            elif ready:
                for _ in self.transport.receive(ready):
                    pass  # nobody is promoted here: upstream says HELLO again
            now_ns = monotonic_ns()
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
            say("the job's root process is gone: ending")
            self.stopping = True

    def close(self) -> None:
        if self.driver is not None:
            self.driver.close()
        self.transport.close()
        self.control.close()
        self.context.term()


_ACTS: dict[type, Callable[[Worker, Any], None]] = {
    Tell: Worker.tell,
    Load: Worker.load,
    Begin: Worker.begin,
    Start: Worker.start,
    Dial: Worker.dial,
    Feed: Worker.feed,
    End: Worker.end,
}


def say(line: str) -> None:
    """A line for the log; that it cannot be written, on a disk that is full, is no reason to end."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Exit status 0: told to stop, or fenced; 1: the task failed and has said so."""
    lifeline = hold()
    try:
        return _serve()
    finally:
        if lifeline is not None:
            lifeline.let_go()


def _serve() -> int:
    directory, slot = Path(sys.argv[1]), sys.argv[2]
    gc.set_threshold(GC_THRESHOLD, 20, 100)
    give_large_blocks_back()
    worker = Worker(directory, slot)
    signal.signal(signal.SIGTERM, lambda *_: setattr(worker, "stopping", True))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        worker.run()
    except Fenced as problem:
        say(f"fenced: {problem}")
    except CausalError as problem:
        worker.fail(type(problem).__name__, str(problem), isinstance(problem, DEFINITE))
        return 1
    finally:
        worker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
