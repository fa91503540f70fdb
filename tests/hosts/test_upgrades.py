"""Versions of a job of several hosts: upgrades at savepoints, also taken back, and jobs that begin with a savepoint."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.harness.runs import sets
from benchmarks.hosts.site import SUPERVISOR, Site
from tests.hosts.counted import MakeSite
from tests.members import campaign
from tests.servers.test_stored_rows import all_rows

COUNT, KEYS = 4_000, 20
PIPELINE = f"""
from operators import Operator, Pipeline, ValueState
from operators.sinks import JsonLinesSink
from tests.faults.pipelines.held_source import held_generated

class Count(Operator):
    total = ValueState[int](default=0)
    def process(self, record, ctx):
        self.total.value += 1
        yield {{"key": ctx.key, "n": self.total.value, "version": 1}}

pipeline = Pipeline("versions")
settings = pipeline.settings
numbers = held_generated(settings["gate"], lambda p, i: {{"k": i % {KEYS}}}, count={COUNT}, rate=50.0)
counted = pipeline.source("numbers", numbers).key_by(lambda r: r["k"]).process("count", Count(), parallelism=2)
counted.sink("out", JsonLinesSink(settings["out"]))
"""
FAILING = PIPELINE.replace('"version": 1', '"version": 2').replace(
    "        yield",
    '        self.left = getattr(self, "left", 50) - 1\n'
    '        if not self.left:\n            raise ValueError("a mistake")\n'
    "        yield",
)
WIDER = PIPELINE.replace('"version": 1', '"version": 3').replace("parallelism=2", "parallelism=3")


def start(site: Site, text: str, *arguments: str) -> None:
    """Start `causal run` with this version of the pipeline, and the hosts."""
    path = site.directory / "versions.py"
    path.write_text(text)
    config = site.directory / "job.toml"
    config.write_text('host_timeout_ms = 15000\ndeterminant_flush = "background"\n')
    values = sets(out=f"{site.store}/out", gate=site.directory / "gate")
    site.run(path, *values, "--config", str(config), *arguments)
    for name in site.names:
        site.join(name)


def stopped(site: Site, *arguments: str) -> str:
    """Stop the job at a savepoint; returns what that has printed."""
    done = site.command("savepoint", "--stop", *arguments)
    assert done.returncode == 0, done.stderr
    assert site.await_end() == 0, site.log(SUPERVISOR)
    for name in site.names:
        assert site.status_of(name) == 0, site.log(name)
    return done.stdout


def versions(site: Site, out: str = "out") -> Counter[int]:
    """Return the number of rows of each version."""
    return Counter(row["version"] for row in all_rows(f"{site.store}/{out}"))


def check(site: Site, out: str = "out") -> None:
    counted = Counter((row["key"], row["n"]) for row in all_rows(f"{site.store}/{out}"))
    assert counted == {(i % KEYS, 1 + i // KEYS): 1 for i in range(COUNT)}


@pytest.mark.campaign
def test_an_upgrade_that_fails_is_taken_back_and_another_one_goes_on(site: MakeSite) -> None:
    here = site(["a", "b"])
    start(here, PIPELINE)
    here.await_running(50)
    stopped(here)
    start(here, FAILING, "--resume", "--checkpoint-interval", "30")
    assert here.await_end() == 1 and "a mistake" in here.log(SUPERVISOR), here.log(SUPERVISOR)
    assert "this is an upgrade" in here.log(SUPERVISOR)
    listed = here.command("savepoint", "--list").stdout
    assert "--rollback goes back to it" in listed
    refused = here.command("savepoint", "--delete", listed.split()[0])
    assert refused.returncode == 2 and "--rollback returns" in refused.stderr
    for name in here.names:
        here.status_of(name)
    start(here, PIPELINE, "--resume", "--rollback-on-earlier-code")
    here.await_running(150)
    assert set(versions(here)) == {1}
    stopped(here)
    start(here, WIDER, "--resume")
    (here.directory / "gate").touch()
    assert here.await_end() == 0, here.log(SUPERVISOR)
    check(here)
    assert set(versions(here)) == {1, 3}


@pytest.mark.parametrize("kind", [campaign("directory"), campaign("store")])
def test_a_job_begins_with_the_copy_of_a_savepoint(site: MakeSite, kind: str) -> None:
    here = site(["a", "b"])
    start(here, PIPELINE)
    here.await_running(50)
    copy = here.directory / "copy" if kind == "directory" else f"{here.store}-savepoints/copy"
    assert "copy is in" in stopped(here, "--to", str(copy))
    before = len(all_rows(f"{here.store}/out"))
    text = PIPELINE.replace('settings["out"]', 'settings["out"] + "-2"')
    start(here, text, "--from", str(copy), "--state-dir", str(here.directory / "other"))
    (here.directory / "gate").touch()
    assert here.await_end() == 0, here.log(SUPERVISOR)
    assert len(all_rows(f"{here.store}/out-2")) == COUNT - before
