"""Builds a `JobConfig` from the command line and an optional configuration file.

The command line overrides the file, and the file overrides the defaults.  A resumed job keeps the settings with which
it was started; those that determine its state cannot be changed.
"""

from __future__ import annotations

import os
import secrets
import time
import tomllib
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from causal.config import RENAMED, JobConfig, wanted
from causal.errors import PipelineError
from causal.runs import run_id
from causal.topology import FULL_DEPTH
from deploy.jobs.resuming import IDENTITY, KEPT
from deploy.progress.report import beside
from operators.builder.pipeline_settings import Settings

WANTED: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    dict: "a table",
}
"""A description, for each type, of the values that a setting of this type accepts."""


def _kinds() -> dict[str, type]:
    kinds: dict[str, type] = {}
    for known in fields(JobConfig):
        if known.default is not MISSING:
            kinds[known.name] = type(known.default)
        elif known.default_factory is not MISSING:
            kinds[known.name] = type(known.default_factory())
    return kinds


def read_file(path: Path) -> dict[str, Any]:
    """Return the settings in a TOML file, whose keys are those of `JobConfig`.

    Raises:
        PipelineError: the file cannot be read, or a key or a value is invalid.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as problem:
        raise PipelineError(f"{path} cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:  # invalid TOML or UTF-8, or an excessive number or nesting depth
        raise PipelineError(f"{path} is not TOML: {problem}") from None
    return checked(table, str(path))


def checked(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the settings after checking that all names are known and all values have the right type.

    Raises:
        PipelineError: a name is unknown, or a value has the wrong type.
    """
    kinds = _kinds()
    result: dict[str, Any] = {}
    for given_name, value in table.items():
        name = RENAMED.get(given_name, given_name)
        if name in result:
            raise PipelineError(f"{where}: {name} is set twice, once under its older name; remove the older one")
        if name not in kinds or name in IDENTITY:
            known = sorted(set(kinds) - IDENTITY)
            from difflib import get_close_matches  # imported here because only messages need it

            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
            raise PipelineError(f"{where}: unknown setting {name}; {hint}")
        kind = kinds[name]
        if name == "sharing_depth" and value == "full":
            value = FULL_DEPTH
        elif name == "standbys" and type(value) is int:
            value = str(value)
        elif kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise PipelineError(f"{where}: setting {name} is {value!r:.80}; use {wanted(name) or WANTED[kind]}")
        result[name] = {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else value
    return result


def assignments(items: list[str], option: str = "--set ", form: str = "NAME=VALUE") -> dict[str, str]:
    """Parse the arguments `NAME=VALUE` of `--set`; if a name occurs more than once, the last value counts.

    Args:
        option: what precedes an argument on the command line.
        form: the form of an argument, for people.

    Raises:
        PipelineError: an argument has no `=` or no name.
    """
    result: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise PipelineError(f"{option}{item}: use {form}")
        result[name] = value
    return result


def check_read(explicit: Mapping[str, Any], read: Settings, arguments: Namespace) -> None:
    """Refuse a setting that the pipeline did not read while it was built.

    Raises:
        PipelineError: there is such a setting; the message suggests the name that the user probably meant.
    """
    for name in explicit.get("settings", {}):
        reason = read.unread(name)
        if reason:
            where = "--set" if name in assignments(arguments.set) else f"{arguments.config}: settings:"
            raise PipelineError(f"{where} {name}: {reason}")


def report_path(file: str) -> Path:
    """Return the absolute path of `--report` after checking it, before the job starts, because a job may take a week.

    Raises:
        PipelineError: no file can be written at this path.
    """
    path = Path(file).absolute()
    if os.path.isdir(path):
        raise PipelineError(f"--report {file} is a directory; use a file")
    fresh = beside(path)
    try:
        if not fresh.exists():
            fresh.touch(exist_ok=False)
            fresh.unlink()
    except OSError as problem:
        where = f"nothing can be written in {path.parent}: {problem.strerror}"
        raise PipelineError(f"--report {file}: {where}; use another path") from None
    return path


def sharing_depth(text: str) -> int:
    """Parse `full` or a number of hops.

    Raises:
        PipelineError: the text is neither of these.
    """
    if text == "full":
        return FULL_DEPTH
    if not text.isdecimal() or len(text) > len(str(FULL_DEPTH)) or int(text) < 1:
        raise PipelineError(f"--sharing-depth {text:.80}: use a whole number from 1, or full")
    return int(text)


def kills(items: list[str]) -> tuple[tuple[str, float], ...]:
    """Parse the `TASK@SECONDS` arguments of `--kill`.

    Raises:
        PipelineError: an argument has a different form.
    """
    result: list[tuple[str, float]] = []
    for item in items:
        task, at, seconds = item.rpartition("@")
        try:
            moment = float(seconds)
        except ValueError:
            moment = -1.0
        if not at or not task or not 0 <= moment < 1e9:
            raise PipelineError(f"--kill {item}: use TASK@SECONDS, for example count/0@2.5")
        result.append((task, moment))
    return tuple(result)


def config_of(name: str, pipeline: Path, explicit: Mapping[str, Any], file: str | None = None) -> JobConfig:
    """Return the configuration for a new run of the pipeline.

    Args:
        file: the configuration file, which the message about an invalid value names.

    Raises:
        PipelineError: the value of a setting is invalid.
    """
    run = run_id(time.time_ns(), secrets.token_hex(4))
    config = _built({**explicit, "run": run, "name": name, "pipeline": str(pipeline)}, file)
    if config.hosts_expected and not config.listen:
        raise PipelineError(
            f"{file}: setting hosts_expected is {config.hosts_expected}, but without --listen the job has only "
            "one host; add --listen tcp://ADDRESS:PORT"
        )
    return config


def _built(settings: Mapping[str, Any], file: str | None) -> JobConfig:
    try:
        return JobConfig(**settings)
    except PipelineError as problem:
        if file is not None and _mistake_in(file) == str(problem):
            raise PipelineError(f"{file}: {problem}") from None
        raise


def _mistake_in(file: str) -> str:
    """Return the error in the settings of the configuration file alone; empty if there is none."""
    try:
        JobConfig(**{**read_file(Path(file)), "run": "", "name": "", "pipeline": ""})
    except PipelineError as problem:
        return str(problem)
    return ""


def resumed(before: JobConfig, pipeline: Path, explicit: Mapping[str, Any], file: str | None = None) -> JobConfig:
    """Return the configuration `before` of a run, updated with the settings that were specified explicitly.

    Raises:
        PipelineError: an explicit setting contradicts the state on disk.
    """
    for name in sorted(KEPT):
        kept = getattr(before, name)
        if name in explicit and explicit[name] != kept:
            shown = "full" if name == "sharing_depth" and kept >= FULL_DEPTH else kept
            raise PipelineError(
                f"--resume keeps {name} at {shown}, because the state on disk was written with this value; "
                "start without --resume to change it"
            )
    merged = {**asdict(before), **explicit, "pipeline": str(pipeline)}
    merged["settings"] = {**before.settings, **explicit.get("settings", {})}
    return _built(merged, file)
