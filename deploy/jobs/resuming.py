"""Decides what a resumption may change; each field of `JobConfig` belongs to one class, `settings` to `REPLAYED`.

An interrupted job is replayed from its log, and only the code and settings that wrote the log can replay it (D12, D19).
Other code, another `--set` value or another treatment of the clock would need different entries, and would contradict
visible rows. A setting of the class `REPLAYED` may therefore change only if nothing is replayed, which is the case at a
savepoint, or with `--code new`, which ends the job if its rows differ from visible ones. Until a checkpoint completes
after such a change, the job directory keeps the code and the settings that wrote the log, and `--code kept` resumes
with them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.errors import CorruptData, PipelineError
from causal.sealed import seal, unseal
from operators.builder.pipeline_settings import Settings
from operators.code_archive.archive import DIRECTORY
from standby.storage.manifest_files import newest_manifest

IDENTITY = frozenset(("run", "name", "pipeline", "code", "first_incarnation", "format", "input"))
"""The fields that `causal run` itself sets."""

KEPT = frozenset(("guarantee", "sharing_depth", "determinant_flush", "key_groups", "store"))
"""Settings that determine the state on disk and where it is stored; no resumption may change them."""

REPLAYED = frozenset(("settings", "hidden_nondeterminism", "on_error", "record_bytes_max"))
"""Settings that a replay reads, because the effect of an event on an operator depends on them."""

APPLIED = frozenset(
    (
        "durability", "checkpoint_interval_s", "replay_target_ms", "standbys", "processes", "dead_letters", "state",
        "state_memory_bytes_max", "state_directory", "channel_window_bytes", "batch_elements_max", "latency_target_ms",
        "inflight_memory_bytes_max", "inflight_disk_bytes_max", "log_bytes_max", "staged_bytes_max",
        "ingest_bytes_max", "kept_input_bytes_max", "heartbeat_ms", "heartbeat_timeout_ms", "stuck_after_ms",
        "event_timeout_s", "sink_retry_timeout_s", "crash_loop_max", "transport", "listen", "key", "hosts", "on",
        "agents", "spark_conf", "hosts_expected", "host_timeout_ms", "rebalance_after_s", "verify_replay",
        "record", "metrics_port", "metrics_listen",
    )
)  # fmt: skip
"""Settings that no row depends on; a resumption applies them from then on."""

BEFORE = Path(DIRECTORY) / "before.json"
"""The file that records the version that `--code new` replaced, its successor, and the last checkpoint."""

SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Written:
    """The code and the settings that wrote a log."""

    code: str
    """The digest of the code archive."""
    read: Mapping[str, Any]
    """The value of each field of `REPLAYED`."""

    @classmethod
    def by(cls, config: JobConfig) -> Written:
        """Return the code and the settings of one version of a job."""
        return cls(config.code, {name: _plain(getattr(config, name)) for name in sorted(REPLAYED)})


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def check(written: Written, config: JobConfig, read: Settings) -> None:
    """Refuse a resumption that would replay a log with settings other than those that wrote it.

    Args:
        config: the settings of the resumption.
        read: the pipeline's own settings, after its file has been loaded.

    Raises:
        PipelineError: there is such a setting; the message contains its values and the remedies.
    """
    changes = list(_changes(written, config, read))
    if changes:
        raise PipelineError(
            f"{' and '.join(changes)}; the job did not stop at a savepoint, so its events can be replayed only "
            "with the old value: resume with that value, and change it after `causal savepoint --stop`; "
            "--code new replays with the new value, and ends the job if the rows differ from the visible rows"
        )


def _changes(written: Written, config: JobConfig, read: Settings) -> Iterator[str]:
    """Yield the differences that a replay would reveal, as clauses."""
    before, now = written.read["settings"], config.settings
    for name in sorted({*before, *now}):
        values = [each.get(name, read.default(name)) for each in (before, now)]
        if values[0] != values[1]:
            yield f"setting {name} was {_shown(values[0])} and is {_shown(values[1])} now"
    for name in sorted(REPLAYED - {"settings"}):
        value = getattr(config, name)
        if written.read[name] != value and not _is_safe(name, written, config):
            yield f"{name} was {_shown(written.read[name])} and is {_shown(value)} now"


def _is_safe(name: str, written: Written, config: JobConfig) -> bool:
    """Return whether a replay with a new value has the same result, because the old value would have ended the job."""
    stopped = bool(written.read["on_error"] == "stop")
    if name == "on_error":
        return stopped
    return name == "record_bytes_max" and stopped and config.record_bytes_max > int(written.read[name])


def _shown(value: Any) -> str:
    return "not set" if value is None else f"{value!r:.{SHOWN_CHARACTERS}}"


def kept(written: Written, config: JobConfig, explicit: Mapping[str, Any]) -> JobConfig:
    """Return the settings for a resumption with the code and the settings that wrote the log.

    Args:
        explicit: the settings that this resumption sets explicitly; they take precedence, but `check` refuses them if
            they differ.
    """
    read = {name: value for name, value in written.read.items() if name not in explicit}
    if "settings" in explicit:
        read["settings"] = {**written.read["settings"], **explicit["settings"]}
    return replace(config, **read)


def written_before(job: Path, config: JobConfig) -> Written | None:
    """Return the version that the current version replaced; None if there is none or a checkpoint completed since.

    Args:
        config: the settings of the current version.

    Raises:
        CorruptData: the file `BEFORE` is damaged.
    """
    path = job / BEFORE
    try:
        record = unseal(path.read_text())
        if "by" not in record:  # the file was written by version 0.2.0, which recorded only the code
            own = Written.by(config).read
            sides = {side: {"code": record[name], "read": own} for side, name in (("by", "code"), ("before", "before"))}
            record = {**record, **sides}
        epoch, by = int(record["epoch"]), _side(record["by"])
        before = _side(record["before"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise CorruptData(
            f"{path} is damaged ({problem}); remove it, and --code kept then uses the code of the last resume"
        ) from None
    return before if by == Written.by(config) and _complete(job) <= epoch else None


def _side(record: Mapping[str, Any]) -> Written:
    return Written(str(record["code"]), {name: record["read"][name] for name in sorted(REPLAYED)})


def written(job: Path, config: JobConfig) -> Written:
    """Return the version that wrote a job's log: either the current version or the one that it replaced."""
    return written_before(job, config) or Written.by(config)


def note(job: Path, before: JobConfig, config: JobConfig) -> None:
    """Record that a resumption replaces the version that wrote the log.

    The record counts until the new version completes a checkpoint.  This function must be called before `job.json`
    contains the new settings.
    """
    origin, now = written(job, before), Written.by(config)
    if now in (Written.by(before), origin):
        return
    record = {"before": _record(origin), "by": _record(now), "epoch": _complete(job)}
    fresh = job / f"{BEFORE}.new"
    fresh.write_text(seal(record))
    os.replace(fresh, job / BEFORE)


def _record(written: Written) -> dict[str, Any]:
    return {"code": written.code, "read": dict(written.read)}


def sweep(job: Path, config: JobConfig) -> None:
    """Remove archives that the job no longer needs; savepoints have archives of their own."""
    before = written_before(job, config)
    for path in (job / DIRECTORY).glob("*.zip*"):
        if path.name not in (f"{config.code}.zip", f"{before.code if before else ''}.zip"):
            path.unlink(missing_ok=True)
    if before is None:
        (job / BEFORE).unlink(missing_ok=True)


def _complete(job: Path) -> int:
    """Return the epoch of the last complete checkpoint; 0 for none."""
    newest = newest_manifest(job)
    return 0 if newest is None else newest[0]
