"""A sink of your own that replaces a file, with all checks of the conformance kit."""

import json
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from causal.storage.lock import FileLock
from operators.sinks import conformance
from operators.sinks.contract import (
    Account,
    Sink,
    Unavailable,
    check_newest,
    fenced,
    foreign_rows,
    lines_of,
    packed,
    unpacked,
)


class WholeFileSink(Sink):
    def __init__(self, directory):
        self.directory = Path(directory)

    def open_store(self, task, job_directory):
        return WholeFileStore(task, self.directory / f"{task.replace('/', '-')}.json")


class WholeFileStore:
    def __init__(self, task, path):
        self.task, self.path, self.lock = task, path, FileLock(path.with_suffix(".lock"))

    @contextmanager
    def locked(self):
        if not self.lock.acquire(wait_ms=100):
            raise Unavailable(f"{self.path} is being written by another process")
        try:
            yield
        finally:
            self.lock.release()

    def load(self):
        stored = json.loads(self.path.read_text())
        return unpacked(self.task, bytes.fromhex(stored["account"])), stored["rows"]

    def save(self, account, rows):
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({"account": packed(account).hex(), "rows": rows}))
        os.replace(fresh, self.path)  # the atomic step

    def open(self, task, run, incarnation):
        self.writer = (run, incarnation)
        with self.locked():
            account, rows = self.load() if self.path.exists() else (Account(task, run, incarnation), [])
            check_newest(self.path, run, account.run)
            if account.run != run:
                raise foreign_rows(self.path, "WholeFileSink")
            if account.incarnation > incarnation:
                raise fenced(task, incarnation)
            account.incarnation = incarnation
            self.save(account, rows)
        return account.store_state()

    def mine(self):
        account, rows = self.load()
        account.fence(*self.writer)
        return account, rows

    def last_bundle(self):
        with self.locked():
            return self.mine()[0].store_state()

    def write(self, bundle):
        with self.locked():
            account, rows = self.mine()
            if account.take(bundle) is not None:
                positions, lines = lines_of(bundle)
                self.save(account, rows + [json.loads(line) for line in lines])

    def truncate(self, epoch):
        with self.locked():
            account, rows = self.mine()
            if account.truncate(epoch):
                self.save(account, rows)

    def close(self):
        self.lock.close()


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_every_promise(check, tmp_path):
    def seen(task):
        path = tmp_path / f"{task.replace('/', '-')}.json"
        return json.loads(path.read_text())["rows"] if path.exists() else []

    check(conformance.Subject(WholeFileSink(tmp_path), read=seen))
