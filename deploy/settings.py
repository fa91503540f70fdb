"""From the command line and one configuration file to a `JobConfig`.

Later beats earlier: defaults, the file, the command line.  A resumed job keeps what it was started
with, and what shapes its state cannot be changed.
"""

from __future__ import annotations

import os
import secrets
import time
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.errors import PipelineError
from causal.runs import run_id
from causal.topology import FULL_DEPTH
from deploy.report import beside
from operators.pipeline_settings import Settings

OURS = frozenset(("run", "name", "pipeline", "code", "format"))
"""Set by `causal run` itself."""

LASTING = ("guarantee", "sharing_depth", "determinant_flush", "key_groups")
"""What the state on disk was made with."""

WORDS: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    dict: "a table",
}
"""What a setting of each type wants, for people."""


def _kinds() -> dict[str, type]:
    kinds: dict[str, type] = {}
    for known in fields(JobConfig):
        if known.default is not MISSING:
            kinds[known.name] = type(known.default)
        elif known.default_factory is not MISSING:
            kinds[known.name] = type(known.default_factory())
    return kinds


def read_file(path: Path) -> dict[str, Any]:
    """The settings in a TOML file with the keys of `JobConfig`.

    Raises:
        PipelineError: it cannot be read, or a key or a value cannot be.
    """
    try:
        told = tomllib.loads(path.read_text())
    except OSError as problem:
        raise PipelineError(f"{path} cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:  # not TOML, not UTF-8, a number or a nesting beyond measure
        raise PipelineError(f"{path} is not TOML: {problem}") from None
    return checked(told, str(path))


def checked(told: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same settings, each known and of its type.

    Raises:
        PipelineError: one is not.
    """
    kinds = _kinds()
    result: dict[str, Any] = {}
    for name, value in told.items():
        if name not in kinds or name in OURS:
            known = sorted(set(kinds) - OURS)
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
            raise PipelineError(f"{where}: unknown setting {name}; {hint}")
        wanted = kinds[name]
        if name == "sharing_depth" and value == "full":
            value = FULL_DEPTH
        elif name == "standbys" and type(value) is int:
            value = str(value)
        elif wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted:
            raise PipelineError(f"{where}: setting {name} is {value!r:.80}; give {WORDS[wanted]}")
        result[name] = {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else value
    return result


def assignments(told: list[str]) -> dict[str, str]:
    """`NAME=VALUE` as given to `--set`; of several with one name the last one counts.

    Raises:
        PipelineError: one has no `=` or no name.
    """
    result: dict[str, str] = {}
    for item in told:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise PipelineError(f"--set {item}: give NAME=VALUE")
        result[name] = value
    return result


def check_read(given: Mapping[str, Any], read: Settings) -> None:
    """Refuse a value for the pipeline that the pipeline, which has been built, never asked for.

    Raises:
        PipelineError: names it, and the name that was probably meant.
    """
    for name in given.get("settings", {}):
        reason = read.unread(name)
        if reason:
            raise PipelineError(f"--set {name}: {reason}")


def report_path(told: str) -> Path:
    """Where `--report` goes: looked at before the job, because a job may take a week.

    Raises:
        PipelineError: nothing can be written there.
    """
    path = Path(told).absolute()
    if os.path.isdir(path):
        raise PipelineError(f"--report {told} is a directory; give a file")
    fresh = beside(path)
    try:
        if not fresh.exists():
            fresh.touch(exist_ok=False)
            fresh.unlink()
    except OSError as problem:
        where = f"nothing can be written in {path.parent}: {problem.strerror}"
        raise PipelineError(f"--report {told}: {where}; give another path") from None
    return path


def sharing_depth(told: str) -> int:
    """`full`, or a number of hops.

    Raises:
        PipelineError: neither.
    """
    if told == "full":
        return FULL_DEPTH
    if not told.isdecimal() or len(told) > len(str(FULL_DEPTH)) or int(told) < 1:
        raise PipelineError(f"--sharing-depth {told:.80}: give a whole number from 1, or full")
    return int(told)


def kills(told: list[str]) -> tuple[tuple[str, float], ...]:
    """`TASK@SECONDS` as given to `--kill`.

    Raises:
        PipelineError: one is not of that form.
    """
    result: list[tuple[str, float]] = []
    for item in told:
        task, at, seconds = item.rpartition("@")
        try:
            moment = float(seconds)
        except ValueError:
            moment = -1.0
        if not at or not task or not 0 <= moment < 1e9:
            raise PipelineError(f"--kill {item}: give TASK@SECONDS, for example count/0@2.5")
        result.append((task, moment))
    return tuple(result)


def config_of(name: str, pipeline: Path, given: Mapping[str, Any], file: str | None = None) -> JobConfig:
    """A new run of the pipeline.

    Args:
        file: the configuration file, for what is said of a wrong value.

    Raises:
        PipelineError: a setting has a value that cannot be.
    """
    run = run_id(time.time_ns(), secrets.token_hex(4))
    return _built({**given, "run": run, "name": name, "pipeline": str(pipeline)}, file)


def _built(settings: Mapping[str, Any], file: str | None) -> JobConfig:
    try:
        return JobConfig(**settings)
    except PipelineError as problem:
        if file is not None and _mistake_in(file) == str(problem):
            raise PipelineError(f"{file}: {problem}") from None
        raise


def _mistake_in(file: str) -> str:
    """The mistake in the settings of a file by themselves; empty if there is none."""
    try:
        JobConfig(**{**read_file(Path(file)), "run": "", "name": "", "pipeline": ""})
    except PipelineError as problem:
        return str(problem)
    return ""


def resumed(before: JobConfig, pipeline: Path, given: Mapping[str, Any], file: str | None = None) -> JobConfig:
    """The run that `before` describes, with what is given now.

    Raises:
        PipelineError: what is given now contradicts the state on disk.
    """
    for name in LASTING:
        if name in given and given[name] != getattr(before, name):
            raise PipelineError(
                f"--resume keeps {name} at {getattr(before, name)}, which the state on disk was made with;"
                " start without --resume to change it"
            )
    told = {**asdict(before), **given, "pipeline": str(pipeline)}
    told["settings"] = {**before.settings, **given.get("settings", {})}
    return _built(told, file)
