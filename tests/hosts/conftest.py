"""A network of hosts per test; where none can be made the tests are skipped, and say why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.hosts.site import Site
from examples.hosts.network import missing

MISSING = missing()


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if MISSING is not None and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=MISSING))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Makes a site with these hosts, and these others in its network."""
    with ExitStack() as stack:

        def make(names: Sequence[str], *others: str) -> Site:
            here = Site(tmp_path, names, others)
            stack.callback(here.close)
            return here

        yield make
