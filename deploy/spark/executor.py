"""The function that runs in a Spark executor and starts one `causal agent`, which cannot outlive the executor.

The function is sent to executors by value, because their Python may lack this package.  At the top of this module, only
the standard library is therefore imported.  The function ends normally no matter what happens to the agent, so that
Spark has nothing to repeat.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REFUSED = 2
"""The exit status of an agent that would fail again in the same way."""


def host_agent(assignments: Iterator[str]) -> Iterator[str]:
    """Run, until it ends, the agent that the only element of a partition describes.

    Yields: the outcome as JSON: the exit status, or None if the agent was not started, and a line with the reason.
    """
    from pyspark import TaskContext

    assignment = json.loads(next(assignments))
    context = TaskContext.get()
    if context is not None and context.attemptNumber():
        yield json.dumps({"status": None, "line": "its executor was lost"})
        return
    problem = lacking(assignment["version"])
    if problem:
        yield json.dumps({"status": REFUSED, "line": problem})
        return
    yield json.dumps(serve(assignment))


def lacking(version: str) -> str:
    """Return what this executor's Python lacks to run an agent of that version; empty if it lacks nothing."""
    where = f"the Python of the executor on {os.uname().nodename} ({sys.executable})"
    remedy = f"install causal-streams {version} there, or ship an environment with spark.archives and PYSPARK_PYTHON"
    try:
        from deploy.launching.host_agent import add_parser  # noqa: F401  all that an agent needs
        from operators.code_archive.archive import runtime_version
    except ImportError as problem:
        return f"{where} lacks causal-streams ({problem}); {remedy}"
    if runtime_version() != version:
        return f"{where} has causal-streams {runtime_version()}, but the job needs {version}; {remedy}"
    return ""


def serve(assignment: dict[str, Any]) -> dict[str, Any]:
    """Run `causal agent` in a directory of its own, which is removed afterwards."""
    from causal.network.roster import ROSTER, KeyPair, save_key
    from causal.process.interpreter import module_command
    from operators.spark.jvm import die_with

    # Spark removes its local directories together with the executor, even if this function cannot clean up.
    parent = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    folder = Path(tempfile.mkdtemp(prefix="causal-agent-", dir=parent if os.path.isdir(parent) else None))
    process = None
    try:
        key = save_key(folder, KeyPair(assignment["name"], assignment["public"], assignment["secret"]))
        (folder / ROSTER).write_text(assignment["roster"])
        options = ["--join", assignment["join"], "--key", str(key), "--state-dir", str(folder / "host")]
        process = subprocess.Popen(
            module_command("deploy", "agent", *options, "--slots", str(assignment["slots"]), "--label", "spark=yes"),
            stdin=subprocess.DEVNULL,
            stdout=2,  # the executor's log, because Spark communicates with its workers over their standard output
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Spark signals its own process group; the agent must end with this process
            preexec_fn=die_with(os.getpid()),
        )
        last = ""
        for line in process.stderr or ():
            print(line, end="", file=sys.stderr, flush=True)
            last = line.strip() or last
        return {"status": process.wait(), "line": last.removeprefix("causal: ")}
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
