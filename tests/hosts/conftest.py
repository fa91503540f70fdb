"""A network of hosts per test; where none can be made the tests are skipped, and say why."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import pytest

from benchmarks.hosts.site import HOME, WAIT_S, RootProcess, Site
from examples.hosts.network import missing
from tests.faults.roots import ROOTS, Place

MISSING = missing()


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if MISSING is not None and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=MISSING))


class ForkedSite(Site):
    """A site whose processes are forked from one that has loaded the product already.

    New interpreters would take most of the CPU of a test.  The code of another version has one of its own.
    """

    def _started(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str], output: IO[bytes]
    ) -> RootProcess:
        if environment["PYTHONPATH"] != str(HOME):
            return super()._started(name, arguments, environment, output)
        return ROOTS.start_on(self._place(name), arguments, self.directory, environment, output, output)

    def command_of_job(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.environment}
        with TemporaryFile("w+") as stdout, TemporaryFile("w+") as stderr:
            place = self._place(self.leader)
            process = ROOTS.start_on(place, arguments, Path.cwd(), environment, stdout, stderr)
            try:
                status = process.wait(WAIT_S)
            finally:
                process.kill()
            for file in (stdout, stderr):
                file.seek(0)
            return subprocess.CompletedProcess(arguments, status, stdout.read(), stderr.read())

    def _place(self, name: str) -> Place:
        return Place(self.network.space(name), self.network.clock_s(name))


def _sites(directory: Path, kind: type[Site]) -> Iterator[Callable[..., Site]]:
    with ExitStack() as stack:

        def make(names: Sequence[str], *others: str) -> Site:
            here = kind(directory, names, others)
            stack.callback(here.close)
            return here

        yield make


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Makes a site with these hosts, and these others in its network."""
    yield from _sites(tmp_path, ForkedSite)


@pytest.fixture
def site_of_users(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Makes a site whose processes start as users start them."""
    yield from _sites(tmp_path, Site)
