"""Records/s of a job whose every channel crosses hosts, ÷ the same job on one of them; and with snapshots in a store.

`curve_over_ipc` compares TCP with CURVE to `ipc`: sources and sink are on one host and the operator on another, or all
of them on the first.  `store_over_local` compares a job on one machine whose snapshots go to a shared store to the same
job that keeps them on its own disk; `s3` is a server on this machine, whose own work is part of what it costs.
Both runs of a pair are one after the other, in turn.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Measurement
from benchmarks.hosts.sites import begin, ended_well, site_of
from benchmarks.jobs import placed
from benchmarks.servers.process import NoServer
from benchmarks.servers.s3 import BUCKET, s3_server

PIPELINE = Path(placed.__file__)
TOGETHER, APART = "rows=a work=a out=a", "rows=a work=b out=a"
WORKS = {"count": 10, "records": 1}
"""Work → how many times `--records` it takes for runs of like length."""
END_WITHIN_S = 300.0
HOST_TIMEOUT_MS = 15_000
"""No host is lost however busy the machine is."""


def transport(run: Measurement) -> None:
    """Measure both works apart and together, in turn."""
    for number in run.rounds():
        for work, times in WORKS.items():
            records = run.options.records * times // placed.PARTITIONS * placed.PARTITIONS
            rates = {}
            pair = (("ipc", TOGETHER), ("curve", APART))
            for name, place in pair if number % 2 else pair[::-1]:
                rates[name] = _on_hosts(work, records, place)
                run.add(f"{work}.{name}_rps", rates[name])
            run.add(f"{work}.curve_over_ipc", rates["curve"] / rates["ipc"])
            run.report(f"round {number}, {work}: {rates['curve']:,.0f} ÷ {rates['ipc']:,.0f} records/s")


def _on_hosts(work: str, records: int, place: str) -> float:
    settings = {"work": work, "count": records, "place": place}
    with site_of(("a", "b")) as site:
        begin(site, PIPELINE, settings, {"host_timeout_ms": HOST_TIMEOUT_MS}, "--checkpoint-interval=1")
        report = ended_well(site, END_WITHIN_S)
        if (rows := runs.tallied(site.directory / "out.db")) != records:
            raise runs.RunFailed(f"the sink holds {rows} rows of {records}")
        return float(report["throughput_rps"])


def store(run: Measurement) -> None:
    """Measure the keyed count with its snapshots in each kind of store, and without one, in turn."""
    records = run.options.records * WORKS["count"]
    with _stores(run) as stores:
        for number in run.rounds():
            rates = {}
            for name, options in list(stores.items())[:: 1 if number % 2 else -1]:
                # A new job each time: two runs of one name in one store have places of their own.
                report = runs.tallied_job(
                    PIPELINE, {"work": "count", "count": records}, records, ("--checkpoint-interval=1", *options)
                )
                rates[name] = float(report["throughput_rps"])
                run.add(f"store.{name}_rps", rates[name])
                run.add(f"store.{name}_checkpoints", report["checkpoints"])
            for name in stores.keys() - {"local"}:
                run.add(f"store.{name}_over_local", rates[name] / rates["local"])
            shown = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
            run.report(f"round {number}, store: {shown} records/s")


@contextmanager
def _stores(run: Measurement) -> Iterator[Mapping[str, tuple[str, ...]]]:
    """Name → options of `causal run`."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="causal-store-"))
        stores: dict[str, tuple[str, ...]] = {"local": (), "directory": (f"--store=file://{directory}",)}
        try:
            s3 = stack.enter_context(s3_server())
        except NoServer as problem:
            run.report(f"store: without S3: {problem}")
        else:
            stack.enter_context(_environment(s3.environment))
            stores["s3"] = (f"--store=s3://{BUCKET}/{time.time_ns()}",)
        yield stores


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Yield variables of this process, which those that it starts inherit."""
    before: dict[str, Any] = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
