"""A worker process: at first a standby with a task's state, and the task itself once it has been promoted.

    python -m operators.runtime.worker JOB_DIRECTORY SLOT [SETTINGS]

The worker connects sockets, files and the clock to `operators.runtime.membership`, which makes the decisions, and to
`causal.shell.driver`, which runs the task. It keeps running without a supervisor.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from traceback import format_exception
from typing import Any

import zmq
from msgspec import structs

from causal.commands import HighestTerm
from causal.config import JobConfig
from causal.errors import (
    DEFINITE,
    CausalError,
    CorruptData,
    Fenced,
    PeerViolation,
    ReplayDivergence,
    Superseded,
    invariant,
)
from causal.ids import TaskIndex
from causal.logs.dissemination import NO_KNOWLEDGE, Knowledge
from causal.logs.rollback import NO_ROLLBACK, Rollback
from causal.network.transport import Transport
from causal.process import processlog
from causal.process.clock import SystemEnvironment, monotonic_ns, take_offset
from causal.process.ending import run
from causal.process.lifeline import hold
from causal.process.memory import give_large_blocks_back
from causal.process.pulse import Message, Pulse, look_ns
from causal.records.values import decode, encode
from causal.shell.driver import TaskDriver, ms_until
from causal.shell.request_pool import RequestPool
from causal.snapshot_files import SnapshotFile
from causal.storage.shared import Depot
from causal.task.activity import Activity
from causal.task.task import TaskProtocol
from causal.task.vitals import Vitals
from operators.builder.loading import load_of_job
from operators.capture.active import RUNNING
from operators.capture.install import install
from operators.engine.plan import plan
from operators.kinds.process.outside_calls import askers_of
from operators.records.seconds import seconds_of
from operators.runtime.backlog import Backlog
from operators.runtime.hosting import RootWatch, fetch_code, fetch_from, network_of, readers_of
from operators.runtime.hot_standby import HotStandby, Promotion
from operators.runtime.image import Image
from operators.runtime.membership import (
    Begin,
    Commanded,
    Dial,
    End,
    Feed,
    Input,
    Load,
    Loaded,
    Membership,
    Place,
    Reported,
    SendReport,
    Start,
    Tick,
    rest_ms,
)
from operators.runtime.prepared_stores import PreparedStores
from operators.runtime.preparing import prepare as prepare  # imported by the fork server
from operators.runtime.rehearsals import Rehearsals
from operators.runtime.resident import Loading, Resident
from operators.runtime.task_disk import TaskDisk
from operators.runtime.task_vitals import vitals_of
from operators.runtime.termination import Termination
from operators.runtime.uncaught import reported
from operators.runtime.undeclared import Witness, explained
from operators.runtime.work_progress import LONG_NS, Progress, Work, timed_out
from operators.stage.disk_state import located
from operators.tracebacks import user_traceback

WATCHED_MAX = 500
"""The number of values that a task examines in each attribute, global and closure variable when it begins."""
GC_THRESHOLD = 50_000
LINGER_MS = 500
LOOK_AT_BOUNDS_NS = 10_000_000
"""The interval at which the loop checks whether a memory limit requires a checkpoint, so that a beat is sent early."""
LOAD_STEP_NS = 20_000_000
"""The time for which a state is loaded before the loop checks for messages that have arrived."""
_EVENTS, _POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)
_log = logging.getLogger("causal.worker")


class Worker:
    """A process that has sockets from its start, and a task once it has been promoted.

    State: a standby uses `following` or `hot`, and a promoted process uses `driver`, never both. While `loading` is
        set, acts wait in `later`, except for reports to the supervisor and the order to end.
    """

    def __init__(self, job_directory: Path, slot: str, settings: str = "") -> None:
        """Connect to the supervisor; `settings` names the directory, within the job's, of the version's settings."""
        self.slot = slot
        self.directory = job_directory
        take_offset(job_directory)
        self.config = located(JobConfig.load(job_directory / settings), job_directory)
        self.depot = Depot(self.config.store, self.config.place_in_store, proof="") if self.config.store else None
        self.context: zmq.Context[Any] = zmq.Context(io_threads=1)
        self.work = Work()
        self.progress = Progress(self.work)
        self.membership: Membership | None = None
        self.driver: TaskDriver | None = None
        runtime = (job_directory / "runtime").read_text().strip()
        supervisor = f"ipc://{runtime}/supervisor"
        self.pulse = Pulse(self.context, supervisor, slot, look_ns(self.config.heartbeat_timeout_ms), self.look)
        self.pulse.start()  # from here on, the process counts as alive, however long it needs to load the pipeline
        fetch_code(self.depot, job_directory, self.config.code, say)
        install(self.config.hidden_nondeterminism)  # before the pipeline file and its imports are loaded
        self.plan = plan(load_of_job(job_directory, self.config, lasting=True), self.config)
        self.poller = zmq.Poller()
        bind = "tcp://127.0.0.1:*" if self.config.transport == "tcp" else f"ipc://{runtime}/{slot}"
        self.transport = Transport(self.context, bind, self.poller, network_of(job_directory, self.plan.topology))
        self.control = self.context.socket(zmq.DEALER)
        self.control.linger = LINGER_MS
        self.control.setsockopt(zmq.IDENTITY, slot.encode())
        self.control.setsockopt(zmq.RECONNECT_IVL, 20)
        self.control.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
        self.control.connect(supervisor)
        self.poller.register(self.control, zmq.POLLIN)
        self.membership = Membership(
            slot, os.getpid(), self.transport.endpoint, self.plan.topology, self.config.heartbeat_ms, self.vitals,
            self.transport.remote, rest_ms(self.config.heartbeat_ms, self.config.heartbeat_timeout_ms),
        )  # fmt: skip
        self.terms = HighestTerm()
        self.witness: Witness | None = None
        self.following: Image | None = None
        self.task_disk = TaskDisk(job_directory, slot, self.config, self.depot, self.poller)
        self.hot: HotStandby[Image] | None = None
        self.difference = ""
        """The difference that a hot standby has found between its task and itself."""
        if self.config.hot:
            self.hot = HotStandby(
                self.config.fingerprint(self.plan.topology), self._shadow, self.task_disk.ask, self._shadow_lost
            )
        self.loading: Loading | None = None
        self.later = Backlog(each=self.config.verify_replay)
        self.stopping = False
        self.termination: Termination | None = None
        self.fetch = partial(fetch_from, self.depot, lambda: not self.stopping, say) if self.depot is not None else None
        self.resident = Resident(lambda task: Image(self.plan, task, self.directory, self.fetch))
        self.rehearsals = Rehearsals(self.plan, self.config, job_directory, say, self.fetch)
        self.prepared = PreparedStores(self.plan, job_directory, say)
        self.asking = RequestPool({})
        self.retained = NO_KNOWLEDGE
        """The determinants known to the previous incarnation, kept while the state of the next one is being loaded."""
        self.load_began_ns = self.bounds_look_due_ns = 0
        self.root = RootWatch(job_directory)
        self.wanted_epoch = 0
        """The checkpoint that was wanted at the last check of the memory limits."""

    @property
    def label(self) -> str:
        """The process name in the log: the task that it runs, or its slot while it is a standby.

        Everything that a standby performs is a replay. The same condition mutes `ctx.log`.
        """
        if self.driver is None:
            return self.slot if RUNNING.active is None else f"{RUNNING.active.task} (replay)"
        task = self.driver.task
        return f"{task.name} (replay)" if task.recovery.replays else task.name

    def handle(self, event: Input) -> None:
        """Advance the membership by one step and perform the resulting acts."""
        for act in self.member.handle(event, monotonic_ns()):
            if not self.later.takes(act, self.loading is not None):
                _ACTS[type(act)](self, act)

    @property
    def member(self) -> Membership:
        invariant(self.membership is not None, "the control plane is used once the pipeline is loaded", slot=self.slot)
        return self.membership  # type: ignore[return-value]

    def send_report(self, act: SendReport) -> None:
        message = {"kind": act.kind, "slot": self.slot, **act.facts}
        try:
            self.control.send(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return  # the next beat reports the same state

    def vitals(self) -> Vitals:
        """Return the vitals for a beat."""
        checked = (self.rehearsals.checked, self.rehearsals.problem)
        doing = self._loaded_so_far()
        if self.driver is None:
            begins = self.loading is not None and isinstance(self.loading.act, Begin)
            epoch = self.loading.act.epoch if self.loading is not None and isinstance(self.loading.act, Begin) else 0
            shadow: dict[str, int | str] | None = None
            if self.hot is not None:
                shadow = {**self.hot.facts, "difference": self.difference}
            return Vitals("loading" if begins else "standby", epoch, checked=checked, doing=doing, shadow=shadow)
        return vitals_of(self.driver, self.task_disk.disk, checked, self.progress.hot_keys)

    def _loaded_so_far(self) -> Activity | None:
        """Return the progress of loading a state once loading has taken a while; otherwise None."""
        work = self.work
        if self.loading is None or monotonic_ns() - self.load_began_ns < LONG_NS:
            return None
        return Activity("load", self.load_began_ns, done=work.done, total=work.total)

    def look(self) -> Message | None:
        """Return the pulse message, on the pulse's thread; there is none while the loop itself is sending beats.

        If a store call or an event has exceeded its time limit, return the report that ends the process.
        """
        driver, member = self.driver, self.membership
        doing = self.progress.look()
        if doing is not None and doing.kind == "load":
            doing = structs.replace(doing, since_ns=self.load_began_ns)
        stuck = driver.overdue() if driver is not None else None
        if driver is not None:
            call_ns = driver.store_call_ns
            if doing is not None and call_ns and doing.kind == "work":
                doing = Activity("store", call_ns, at=doing.at)
        if stuck is not None:
            return self._failed("RetriesExhausted", stuck)
        if doing is not None and doing.kind == "event" and driver is not None:
            lasted_s, limit_s = seconds_of(monotonic_ns() - doing.since_ns), self.config.event_timeout_s
            if 0 < limit_s <= lasted_s:
                return self._failed("EventTimeout", timed_out(doing, lasted_s, limit_s))
        if member is not None and monotonic_ns() < member.beat_due_ns + self.config.heartbeat_ms * 1_000_000:
            return None
        facts: dict[str, Any] = {"pid": os.getpid()}
        if member is not None:
            facts["endpoint"] = self.transport.endpoint
            if self.transport.remote:
                facts["remote"] = self.transport.remote
        if doing is not None:
            facts["doing"] = doing.message()
        if driver is not None:
            facts["state"] = driver.reported_state
        if driver is not None and driver.waiting is not None:
            facts["waiting"] = list(driver.waiting)
        return "pulse", facts

    def _failed(self, error: str, message: str, definite: bool = True) -> Message:
        """Log that the task cannot continue; return the report, which ends the process when the pulse sends it."""
        task = self.member.name
        say(f"{task or 'standby'}: {error}: {message}")
        facts = {"task": task, "incarnation": self.member.incarnation, "error": error}
        return "failed", {**facts, "message": message, "definite": definite}

    def report(self, kind: str, facts: dict[str, Any]) -> None:
        """Process a report from the driver."""
        if kind != "waiting":
            self.handle(Reported(kind, facts))
            return
        if "line" in facts:
            say(facts["line"])
            self.member.beat_due_ns = 0
        self.handle(Tick())

    def fail(self, error: str, message: str, definite: bool) -> None:
        """Report that the task cannot continue."""
        self.send_report(SendReport(*self._failed(error, message, definite)))

    def explained(self, problem: CausalError) -> str:
        """Return an error's message; for a divergence, add the data that user code has kept outside its state."""
        if not isinstance(problem, ReplayDivergence):
            return str(problem)
        places = [] if self.witness is None else self.witness.changed()
        return explained(problem, places, self.plan.topology, self.plan.commuting)

    def _commanded(self) -> bool:
        """Return whether a message from the supervisor has arrived."""
        return bool(int(self.control.get(_EVENTS)) & _POLLIN)

    def obey(self) -> None:
        """Process messages from the supervisor."""
        while True:
            try:
                command = self.terms.read_command(decode(self.control.recv(zmq.NOBLOCK)))
            except zmq.Again:
                return
            except PeerViolation as problem:
                say(f"dropped a control message: {problem}")
                continue
            if command is not None:
                self.handle(Commanded(command))

    def load(self, act: Load) -> None:
        """Begin to load the state of a task, which continues in steps of `_load_more`."""
        if self.hot is not None:
            if self.hot.follow(act.incarnation, act.epoch, act.files, act.neighbours):
                return
            self.following = self.hot.take_image()
        if self.following is None or self.following.task != act.task:
            self.following = self.resident.begin(act.task)
        if self.config.verify_replay:
            self.rehearsals.follow(self.following, act.files)
        self._load(act, self.following, act.files)

    def begin(self, act: Begin) -> None:
        """Become the task, or roll back in place; the state is loaded in steps of `_load_more`."""
        self.retained = NO_KNOWLEDGE
        hot, self.hot = self.hot, None
        if hot is not None:
            promotion = Promotion(act.incarnation, act.epoch, act.files, act.rollback)
            task = hot.promote(promotion, monotonic_ns())
            if task is not None:
                self._drive(act, task, hot.answers)
                return
            for neighbour, endpoint in hot.kept:
                self.transport.dial(neighbour, endpoint)
            self.following = hot.take_image()
            del hot, task  # release the old state before the checkpoint is loaded
        image, self.following = self.following, None
        if self.driver is not None:
            self.retained = self.driver.task.retained(act.rollback)
            self._close_task(self.driver)
        self.driver = self.witness = None
        if image is None or image.task != act.task:
            image = self.resident.begin(act.task)
        self._load(act, image, act.files)

    def _close_task(self, driver: TaskDriver) -> None:
        """Close everything that a task has open, and stop polling it."""
        if self.asking.wake >= 0:
            self.poller.unregister(self.asking.wake)
        self.task_disk.close()
        driver.close(ends=False)
        self.asking = RequestPool({})

    def _load(self, act: Load | Begin, image: Image, files: Sequence[SnapshotFile]) -> None:
        known = {path for path, _, _ in image.files}
        self.load_began_ns = monotonic_ns()
        self.work.begin("load", sum(size for path, size, _ in files if path not in known))
        self.loading = Loading(act, image, image.loading(files))
        self._load_more()

    def _load_more(self) -> None:
        """Load for a short time; once everything has been loaded, continue with the act that required it."""
        loading = self.loading
        if loading is None:
            return
        work, until_ns = self.work, monotonic_ns() + LOAD_STEP_NS
        work.kind = "load"
        try:
            for done in loading.steps:
                work.done = done
                if monotonic_ns() >= until_ns:
                    return
        except CorruptData:
            if not isinstance(loading.act, Load) or all(
                (self.directory / path).exists() for path, _, _ in loading.act.files
            ):
                raise
            # A later checkpoint has replaced the one being loaded; the supervisor names the new one until it has been
            # loaded. What has been loaded of a large state stays.
            self.following, self.loading = loading.image if loading.image.whole else None, None
            return
        self.loading = None
        if isinstance(loading.act, Begin):
            self._begun(loading.act, loading.image)
        else:
            if self.hot is not None:
                self.following = None
                self.hot.loaded(loading.image, monotonic_ns())
            self.prepared.follow(TaskIndex(loading.act.task))
            self.handle(Loaded(loading.image.cut.epoch))

    def _begun(self, act: Begin, image: Image) -> None:
        self.resident.freeze(image)
        invariant(image.cut.epoch == act.epoch, "the files hold the epoch of the order", epoch=act.epoch)
        retained, self.retained = self.retained, NO_KNOWLEDGE
        self._watch(image)
        self._drive(act, self._task(image, act.incarnation, act.rollback, retained))

    def _task(self, image: Image, incarnation: int, rollback: Rollback, retained: Knowledge) -> TaskProtocol:
        return TaskProtocol(
            self.plan.topology, TaskIndex(image.task), incarnation, self.config, image.chain, SystemEnvironment(),
            image.cut, image.files, say, rollback, retained,
        )  # fmt: skip

    def _shadow(self, image: Image) -> TaskProtocol:
        """Return a task that performs events from the echo of another process."""
        self.resident.freeze(image)
        self._watch(image)
        self.task_disk.shadow(self.plan.topology.tasks[image.task].name)
        return self._task(image, 0, NO_ROLLBACK, NO_KNOWLEDGE)

    def _shadow_lost(self, line: str, blamed: bool) -> None:
        say(f"hot standby of {self.member.name}: {line}")
        self.difference = line if blamed else self.difference
        self.witness = None
        if self.resident.performed:  # a state that waits for an echo, or is being loaded, stays
            self.resident.release()
            self.task_disk.close()
        self.handle(Loaded(None if self.hot is None else self.hot.follows))

    def _shadows(self, hot: HotStandby[Image], ready: dict[Any, int]) -> None:
        """Perform some of the events that the followed task has performed."""
        followed = hot.follows
        self.task_disk.answer(ready, lambda answer: hot.answered(answer, monotonic_ns()))
        acknowledged = hot.turn(monotonic_ns())
        self.resident.collect()
        if acknowledged is not None:
            self.transport.reply(*acknowledged)
        for greeting in hot.greetings(monotonic_ns()):
            self.transport.dial(greeting.task, greeting.endpoint)
            if greeting.parts:
                self.transport.send(greeting.task, greeting.parts)
        if hot.follows not in (followed, None):
            self.handle(Loaded(hot.follows))

    def _watch(self, image: Image) -> None:
        """Record what user code keeps outside its state before it runs, so that later changes can be named."""
        self.witness = None
        if image.chain.stages:
            image.chain.open()
            self.witness = Witness(self.plan.nodes(image.task), image.chain, WATCHED_MAX)

    def _catch_up(self) -> None:
        """Perform postponed acts until a state is being loaded again."""
        while self.later and self.loading is None:
            act = self.later.next()
            _ACTS[type(act)](self, act)

    def _drive(self, act: Begin, protocol: TaskProtocol, answers: Sequence[list[bytes]] = ()) -> None:
        topology, task, chain = self.plan.topology, TaskIndex(act.task), protocol.execution.chain
        disk = self.task_disk.begin(topology.tasks[task].name, act.incarnation)
        self.asking = RequestPool(askers_of(chain))
        if self.asking.wake >= 0:
            self.poller.register(self.asking.wake, zmq.POLLIN)
        stores = self.prepared.of(task)
        readers = readers_of(self.plan, task, protocol.channels.partitions, self.directory, bool(self.transport.remote))
        self.driver = TaskDriver(
            protocol, self.config.run, self.transport, disk, stores, readers, self.report, self.asking,
            self.config.sink_retry_timeout_s, self.work.turn, self._commanded, answers,
        )  # fmt: skip

    def start(self, act: Start) -> None:
        invariant(self.driver is not None, "a task begins before it starts", slot=self.slot)
        self.driver.start()  # type: ignore[union-attr]
        say(f"{processlog.BEGINS}{self.member.incarnation}")
        self.handle(Tick())

    def place(self, act: Place) -> None:
        self.transport.place(act.task, act.endpoint)

    def dial(self, act: Dial) -> None:
        if self.hot is None or not self.hot.keeps(act.task, act.endpoint):
            self.transport.dial(act.task, act.endpoint)

    def feed(self, act: Feed) -> None:
        if self.driver is not None:
            self.driver.feed(act.event)

    def end(self, act: End) -> None:
        self.stopping = True

    def run(self) -> None:
        """Run until an order to stop arrives or the job's root process has ended."""
        work, member = self.work, self.member
        while not self.stopping:
            self.handle(Tick())
            busy = self.hot is not None and not self.hot.idle
            wait_ms = self.driver.wait_ms() if self.driver is not None else 0 if busy else 1000
            until_beat_ms = ms_until(member.beat_due_ns, monotonic_ns())
            rest_ns = work.rest()
            ready = dict(self.poller.poll(0 if self.loading is not None else min(wait_ms, until_beat_ms)))
            work.turn(monotonic_ns())
            if self.termination is not None and self.termination.wake in ready:
                self.termination.drain()
            member.stir(work.began_ns)
            if self.hot is not None:  # before an order to take over: elements in the echo need not be sent again
                self.hot.take(self.transport.receive(ready), monotonic_ns())
            if self.control in ready:
                self.obey()
            if self.loading is not None:
                self._load_more()
            if self.later:
                self._catch_up()
            if self.driver is not None:
                self.driver.work(ready, work.began_ns - rest_ns)
            elif self.hot is not None:
                self._shadows(self.hot, ready)
            elif ready:
                for _ in self.transport.receive(ready):
                    pass  # no task runs in this process; upstream tasks will send HELLO again
            now_ns = monotonic_ns()
            if now_ns >= self.bounds_look_due_ns:
                self._look_at_bounds(now_ns)
            if self.root.gone(now_ns):
                say("the job's root process has ended, so this process exits")
                self.stopping = True

    def _look_at_bounds(self, now_ns: int) -> None:
        """Send a beat immediately when the task wants a checkpoint: its logs grow until the checkpoint begins."""
        self.bounds_look_due_ns = now_ns + LOOK_AT_BOUNDS_NS
        wanted_epoch = self.driver.task.retention.wanted_epoch if self.driver is not None else 0
        if wanted_epoch > self.wanted_epoch:
            self.member.beat_due_ns = 0
        self.wanted_epoch = wanted_epoch

    def close(self) -> None:
        self.pulse.close()
        if self.driver is not None:
            self.driver.close()
        self.prepared.close()
        self.task_disk.close()
        self.transport.close()
        self.control.close()
        self.context.term()


_ACTS: dict[type, Callable[[Worker, Any], None]] = {
    SendReport: Worker.send_report,
    Load: Worker.load,
    Begin: Worker.begin,
    Start: Worker.start,
    Dial: Worker.dial,
    Place: Worker.place,
    Feed: Worker.feed,
    End: Worker.end,
}


def say(line: str) -> None:
    """Write a message of the runtime to the process log."""
    _log.info("%s", line)


def main() -> int:
    """Run a worker. Exit status 0: it was stopped or fenced; 1: the task failed and has reported the failure."""
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
    workers: list[Worker] = []
    own = os.getpid()
    processlog.begin(directory / "logs" / f"{slot}.log", lambda: workers[0].label if workers else slot)
    try:
        worker = Worker(directory, slot, *sys.argv[3:])
    except CausalError as problem:
        say(f"cannot begin: {problem}")
        return 1
    workers.append(worker)

    def stop() -> None:
        worker.stopping, worker.control.linger = True, 0  # the agent reports the end, so pending messages may be lost

    termination = worker.termination = Termination(stop)
    worker.poller.register(termination.wake, zmq.POLLIN)
    try:
        worker.run()
    except CausalError as problem:
        if os.getpid() != own:  # raised in a child that user code forked
            raise
        if isinstance(problem, Fenced) and not isinstance(problem, Superseded):
            say(f"fenced: {problem}")
            return 0
        if problem.__cause__ is not None:
            _log.error("%s", user_traceback(problem.__cause__).rstrip())
        worker.fail(type(problem).__name__, worker.explained(problem), isinstance(problem, DEFINITE))
        return 1
    except BaseException as problem:
        report = reported(problem, worker.label) if os.getpid() == own else None  # not in a child that user code forked
        if report is None:
            raise
        _log.error("%s", "".join(format_exception(problem)).rstrip())
        worker.fail(*report)
        return 1
    finally:
        termination.close()
        worker.close()
    return 0


if __name__ == "__main__":
    run(main)
