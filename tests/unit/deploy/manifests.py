"""The condition with which the pod of the supervisor begins a job or resumes it, as the manifest has it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

MANIFESTS = Path(__file__).parents[3] / "deploy" / "kubernetes"
STATE = "/state/job"
"""The job's directory in the pod."""


def resumption(directory: Path, manifest: str = "supervisor") -> str:
    """Return what the shell of the pod appends to `causal run` where its job has this directory."""
    (pod,) = (
        each["spec"]["template"]["spec"]
        for each in yaml.safe_load_all((MANIFESTS / f"{manifest}.yaml").read_text())
        if each is not None and each["kind"] == "StatefulSet"
    )
    (line,) = (argument for container in pod["containers"] for argument in container["args"])
    (condition,) = re.findall(r"\$\(.*\)", line)
    assert f" --state-dir {STATE} " in line and STATE in condition
    script = f"printf %s {condition.replace(STATE, str(directory))}"
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
