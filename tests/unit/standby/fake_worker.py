"""A worker that speaks the control protocol and does nothing else.

    python -m tests.unit.standby.fake_worker JOB_DIRECTORY SLOT

It obeys what its supervisor says, acknowledges every checkpoint, and as a sink reports `finished` when
the file `finish` appears in the job's directory.  It dies by half, its main thread alone, when `die-SLOT` appears.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import zmq

from causal.config import JobConfig
from causal.process.lifeline import hold
from causal.records.values import decode, encode
from standby.blueprint import Blueprint

ABANDONED_S = 30.0


class FakeWorker:
    def __init__(self, job: Path, slot: str) -> None:
        self.job, self.slot = job, slot
        self.runtime = (job / "runtime").read_text().strip()
        self.beat_s = JobConfig.load(job).heartbeat_ms / 1000
        self.topology = Blueprint.load(job).topology
        self.facts: dict[str, Any] = {"task": None, "incarnation": 0, "state": "standby", "epoch": 0}
        self.facts.update(acked=None, followed=None, counters={}, first_record_ns=None, last_output_ns=None)
        self.heard = time.monotonic()
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 300)
        self.socket.setsockopt_string(zmq.IDENTITY, slot)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 20)
        self.socket.connect(f"ipc://{self.runtime}/supervisor")

    def report(self, kind: str, **keys: Any) -> None:
        self.socket.send(encode({"kind": kind, "slot": self.slot, **keys}))

    def beat(self) -> None:
        self.report("beat", pid=os.getpid(), endpoint=f"ipc://{self.runtime}/{self.slot}", **self.facts)

    def phase(self, phase: str, detail: int | None = None) -> None:
        keys = {"task": self.facts["task"], "incarnation": self.facts["incarnation"]}
        self.report("phase", phase=phase, at_ns=time.monotonic_ns(), detail=detail, **keys)

    def run(self) -> None:
        while time.monotonic() - self.heard < ABANDONED_S:
            self.beat()
            if (self.job / f"die-{self.slot}").exists():
                threading.Thread(target=threading.Event().wait, daemon=True).start()
                ctypes.CDLL(None).pthread_exit(None)
            if self.socket.poll(int(self.beat_s * 1000)):
                self.heard = time.monotonic()
                if not self.obey(decode(self.socket.recv())):
                    self.beat()
                    self.socket.close()
                    return
            self.work()

    def work(self) -> None:
        task = self.topology.named(self.facts["task"] or "")
        if task is None:
            return
        if self.topology.is_source(task.index):
            self.facts["first_record_ns"] = self.facts["first_record_ns"] or time.monotonic_ns()
            self.facts["counters"] = {"records_in": 10}
        barrier = self.job / "barrier"
        if barrier.exists() and barrier.read_text() and int(barrier.read_text()) > self.facts["epoch"]:
            self.snapshot(int(barrier.read_text()))
        if self.topology.is_sink(task.index) and (self.job / "finish").exists() and self.facts["state"] == "running":
            self.facts.update(state="finished", counters={"records_out": 10}, last_output_ns=time.monotonic_ns())
            self.phase("finished")

    def snapshot(self, epoch: int) -> None:
        self.facts["epoch"] = epoch
        path = f"checkpoints/{self.facts['task']}/e{epoch}-i{self.facts['incarnation']}.snap"
        (self.job / path).parent.mkdir(parents=True, exist_ok=True)
        (self.job / path).write_bytes(b"state")
        self.facts["acked"] = [epoch, [[path, 5, "00"]]]

    def obey(self, order: dict[str, Any]) -> bool:
        kind = order["kind"]
        if kind == "stop":
            return False
        if kind == "promote" and self.facts["task"] is None:
            self.facts.update(
                task=order["task"], incarnation=order["incarnation"], epoch=order["epoch"], state="running"
            )
            for phase in ("promoted", "collected", "replayed", "first_output", "running"):
                self.phase(phase, 7 if phase == "replayed" else None)
        elif kind == "follow" and self.facts["task"] is None:
            self.facts["followed"] = order["epoch"]
        elif kind == "checkpoint" and order["epoch"] > self.facts["epoch"]:
            (self.job / "barrier").write_text(str(order["epoch"]))
        return True


def main() -> int:
    lifeline = hold()
    FakeWorker(Path(sys.argv[1]), sys.argv[2]).run()
    if lifeline is not None:
        lifeline.let_go()
    return 0


if __name__ == "__main__":
    sys.exit(main())
