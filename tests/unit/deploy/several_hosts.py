"""A job of several hosts in a directory and a store, whose supervisor does as much of its life as a test says."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from causal.config import JobConfig
from causal.storage.shared import Depot
from deploy import cli
from deploy.hosts import succession
from standby.candidate.election import Election, Led, begun
from standby.storage.store_journal import perform
from tests.unit.deploy import tiny


class Job:
    """The job; `cli._deploy` is replaced, so that `run` ends where its processes would start."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.state = directory / "state"
        monkeypatch.setattr(cli, "_deploy", lambda *arguments: 0)
        monkeypatch.setattr(succession, "SILENCE_S", 0)
        monkeypatch.setattr(succession, "LOOK_S", 0)

    @property
    def depot(self) -> Depot:
        config = JobConfig.load(self.state)
        return Depot(config.store, config.place_in_store)

    def run(self, *arguments: str, text: str = tiny.text(tiny.KEYED, tiny.ANYWHERE)) -> int:
        """Perform `causal run` up to the first decision of its supervisor; returns its exit status."""
        path = self.directory / "tiny.py"
        path.write_text(text)
        store = f"file://{self.directory}/store"
        return cli.main([
            "run", str(path), "--listen", "tcp://127.0.0.1:0", "--store", store, "--state-dir", str(self.state),
            "--set", f"out={store}/out", *arguments,
        ])  # fmt: skip

    def won(self) -> Led:
        """Make its supervisor win a term, and no more."""
        wake, self._waker = socket.socketpair()
        election = Election(self.state, JobConfig.load(self.state), wake)
        try:
            led = election.run()
        finally:
            os.close(election._lock)
        assert led is not None
        return led

    def led(self, closing: str = "") -> None:
        """Make its supervisor win a term and write the first entry, and the last one for that reason."""
        led = self.won()
        perform(led.ledger.append((), 1), led.depot)
        begun(self.state)
        if closing:
            perform(led.ledger.append((), 2, closing), led.depot)
