"""A supervisor and an agent that write down what they, and a worker of the agent, observe of their start.

python -m tests.unit.standby.observer JOB_DIRECTORY
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from causal.process.interpreter import module_command
from standby.host.children import Child, Children
from standby.host.parentage import adopt_orphans, die_with_parent
from tests.unit.standby.probe import facts

PROBE = "tests.unit.standby.probe"


def main(argv: list[str]) -> int:
    """Write `observed.json`; ends with status 7."""
    root = int(os.environ["CAUSAL_PARENT"])
    die_with_parent()
    job = Path(argv[0])
    seen = {"parent_is_root": os.getppid() == root, **facts()}
    fresh = job / "observed.new"
    fresh.write_text(json.dumps(seen))
    fresh.replace(job / "observed.json")
    print("said by a server", flush=True)
    return 7


def main_of_agent(argv: list[str]) -> int:
    """Do the same, and has a worker do it too; ends with the worker's status."""
    job = Path(argv[0])
    main(argv)
    adopt_orphans()
    children = Children(job)
    children.serve_forks(PROBE)
    child = Child("w1", "worker", tuple(module_command(PROBE, str(job / "worker.json"), "6")), {})
    children.start(child)
    (job / "forked").write_text(str(child.process is None and type(children.forks._process).__name__))  # type: ignore[union-attr]
    while (end := children.reap(child)) is None:
        time.sleep(0.005)
    children.close()
    return end.status or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
