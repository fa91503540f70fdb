"""Jobs of several hosts for the benchmarks: namespaces of one machine, and what went wrong in one line."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.harness.runs import RunFailed, configured, last_line, sets
from benchmarks.hosts.site import SUPERVISOR, Site
from examples.hosts.network import missing


@contextmanager
def site_of(names: Sequence[str], others: Sequence[str] = ()) -> Iterator[Site]:
    """Yield hosts in namespaces; whatever happens, their processes have ended and the namespaces are gone afterwards.

    Raises:
        RunFailed: this machine cannot have such hosts, or a wait inside of the block came to its end.
    """
    lacking = missing()
    if lacking is not None:
        raise RunFailed(f"there can be no hosts on this machine: {lacking}")
    with tempfile.TemporaryDirectory(prefix="causal-hosts-") as name:
        site = Site(Path(name), names, others)
        try:
            yield site
        except AssertionError as problem:
            raise RunFailed(f"{problem}; the job's last line: {last_line(site.log(SUPERVISOR))}") from None
        finally:
            site.close()


SLOTS = 20


def begin(
    site: Site,
    pipeline: Path,
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
    *options: str,
    agents: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> None:
    """Start a job and the agents of all hosts; `out` is added to the settings of the pipeline.

    Args:
        options: of `causal run`.
        agents: further options of each host's agent.
    """
    words = [*sets(**{**settings, "out": site.directory / "out.db"}), configured(site.directory, config)]
    site.run(pipeline, *words, *options)
    for name in site.names:
        site.join(name, "--slots", str(SLOTS), *agents.get(name, ()))


def ended_well(site: Site, within_s: float) -> dict[str, Any]:
    """Return the report of the job, once it has ended.

    Raises:
        RunFailed: it failed.
    """
    status = site.await_end(within_s)
    if status:
        raise RunFailed(f"the job ended with status {status}: {last_line(site.log(SUPERVISOR))}")
    return site.report()
