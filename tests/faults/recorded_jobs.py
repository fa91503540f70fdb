"""Jobs with a recording, for tests of what reads it: a real one of a few seconds, and the index of a long one."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

from causal.config import JobConfig
from causal.recorded_files import DIRECTORY, EpochEntry, FailureEntry, IntervalEntry, KeptEntry, VersionEntry

SECOND_NS = 1_000_000_000
BEGAN_NS = 1_795_837_337 * SECOND_NS
MARKUP = "<img src=x onerror=document.title='broken'>"
SHOP = f"""
from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

MARKUP = {MARKUP!r}
pipeline = Pipeline("shop")


def order(partition, number):
    customer = MARKUP if number % 40 == 7 else f"c{{number % 40}}"
    return {{"order": number, "customer": customer, "cents": 100 + number * 37 % 900}}


class Total(Operator):
    def process(self, order, ctx):
        if order["order"] % 500 == 499:
            raise ValueError("an order that cannot be right")
        total = ctx.state["total"] = ctx.state.get("total", 0) + order["cents"]
        gift = "mug" if ctx.random.random() < 0.1 else None
        yield {{**order, "total": total, "gift": gift, "at": ctx.now()}}


(
    pipeline.source("orders", GeneratedSource(order, count=4_000, rate=2_000))
    .filter("dear", lambda order: order["cents"] > 150)
    .key_by(lambda order: order["customer"])
    .process("total", Total(), parallelism=2)
    .sink("out", SqliteSink("out.db"))
)
"""


def recorded_shop(place: Path) -> Path:
    """Run a job in an empty directory, kill one of its tasks twice, and return the job's directory."""
    (place / "shop.py").write_text(SHOP)
    options = ("--record", "1h,1GB", "--checkpoint-interval", "0.2", "--on-error", "dead-letter")
    kills = ("--kill", "total/0@0.5", "--kill", "total/0@1.1")
    command = [sys.executable, "-m", "deploy", "run", "shop.py", *options, *kills, "--state-dir", "job"]
    subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=120)
    return place / "job"


def write_long_recording(job: Path, epochs: int, interval: int = 100) -> None:
    """Write the index of a recording with this many epochs of a second, and no logs, into a job's directory.

    It has four versions, of which the third is a rollback, a gap, and failures.
    """
    config = replace(JobConfig.load(job), record="24h,10GB")
    config.save(job)
    index = job / DIRECTORY / "index"
    index.mkdir(parents=True)
    tasks = ("orders/0", "total/0", "total/1", "out/0")
    borders = [0, epochs * 5 // 10, epochs * 7 // 10, epochs * 8 // 10]
    for number, code in enumerate(("3f2a91c04d7e", "b01c77aa90f2", "3f2a91c04d7e", "91aa02ff31c0"), 1):
        has = tasks if number < 4 else (*tasks, "total/2")
        settings = {**asdict(config), "code": code.ljust(32, "0")}
        entry = VersionEntry(number, BEGAN_NS, settings, has)
        (job / DIRECTORY / entry.name).write_text(entry.text())
    for first in range(0, epochs, interval):
        if first // interval == epochs // interval // 3:
            continue  # the gap
        number = sum(first >= border for border in borders)
        members = tuple(_epoch(epoch, number, tasks) for epoch in range(first, min(epochs, first + interval)))
        kept = KeptEntry(first, number, BEGAN_NS + first * SECOND_NS, {})
        one = IntervalEntry(kept, members, frozenset(tasks))
        (job / DIRECTORY / one.name).write_text(one.text())


def _epoch(epoch: int, version: int, tasks: tuple[str, ...]) -> EpochEntry:
    at_ns = BEGAN_NS + (epoch + 1) * SECOND_NS
    size = 400 + 300 * (epoch % 3600 > 1800) + epoch * 7919 % 173
    failed = (FailureEntry(tasks[1 + epoch % 2], 2, at_ns, "standby", 130, "silent"),) if epoch % 1117 == 700 else ()
    logs = {task: (1 + len(failed), size * (2 if task.startswith("total") else 1)) for task in tasks}
    return EpochEntry(epoch, version, at_ns, logs, failed)
