"""The command lines of pods, and the condition with which they begin a job or resume it, as the manifests have them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

MANIFESTS = Path(__file__).parents[3] / "deploy" / "kubernetes"
STATE = "/state/job"
"""The job's directory in the pod."""


def shell_line(manifest: str) -> str:
    """Return what the shell of the pod runs."""
    (pod,) = (
        each["spec"]["template"]["spec"]
        for each in yaml.safe_load_all((MANIFESTS / f"{manifest}.yaml").read_text())
        if each is not None and each["kind"] == "StatefulSet"
    )
    (line,) = (argument for container in pod["containers"] for argument in container["args"])
    return str(line)


def resumption(directory: Path, manifest: str = "supervisor") -> str:
    """Return what the shell of the pod appends to `causal run` where its job has this directory."""
    line = shell_line(manifest)
    (condition,) = re.findall(r"\$\(.*\)", line)
    assert f" --state-dir {STATE} " in line and STATE in condition
    script = f"printf %s {condition.replace(STATE, str(directory))}"
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
