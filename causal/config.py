"""What a job is told before it starts.  Written once to `job.json`, read by every process of the job.

Unknown keys are refused, nothing falls back in silence.  The fields that must agree everywhere are in
the fingerprint that every frame carries, so a process of another job or version is never listened to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

from causal.errors import PipelineError
from causal.sealed import seal, unseal
from causal.topology import FULL_DEPTH

_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "Mapping[str, str]": (dict,),
}
"""What may stand in JSON for a field of that type."""
GUARANTEES = ("causal", "epoch", "at-least-once", "none")
ON_ERROR = ("stop", "dead-letter")
STATE = ("memory", "disk")
DETERMINANT_FLUSH = ("off", "background")
DURABILITY = ("process", "os")
HIDDEN_NONDETERMINISM = ("capture", "refuse", "allow")
_CHOICES = {
    "guarantee": GUARANTEES,
    "on_error": ON_ERROR,
    "hidden_nondeterminism": HIDDEN_NONDETERMINISM,
    "determinant_flush": DETERMINANT_FLUSH,
    "durability": DURABILITY,
    "state": STATE,
    "transport": ("ipc", "tcp"),
}
STATE_FORMAT = 2
"""Of everything in a job's directory and in a savepoint; raised when a version writes what others cannot go on with."""
STANDBYS_MAX = 1000
"""Processes that wait in a pool."""
RECORD_BYTES_MAX = 32 << 20
"""The most that `record_bytes_max` may be: a record has to fit into a chunk, with what stands around it."""
LIMITS = {
    "record_bytes_max": RECORD_BYTES_MAX,
    "sharing_depth": FULL_DEPTH,
    "crash_loop_max": 10**6,
    "suspect_after_ms": 10**9,
    "stuck_after_ms": 10**9,
}
INT_MAX = 1 << 53
"""What a whole number may be where nothing else is said: every format that a setting travels in carries it exactly."""


@dataclass(frozen=True, slots=True)
class JobConfig:
    """One run of one pipeline.

    Sizes are in bytes, times in the unit that ends the name.
    """

    run: str
    """Identity of this run; kept by --resume, new otherwise."""
    name: str
    """The pipeline's name."""
    pipeline: str
    """Absolute path of the pipeline file, as it was when its code was archived."""
    code: str = ""
    """Digest of the archive of the code, in `code/` of the job's directory: what every process of the job loads."""
    format: int = STATE_FORMAT
    """Of the state on disk."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What the pipeline file reads from `pipeline.settings`, as text."""
    guarantee: str = "causal"
    """What a failure may do to the output: with "causal" nothing, nor with "epoch", whose rows wait for checkpoints;
    with "at-least-once" rows may come again, with "none" be missing."""
    sharing_depth: int = FULL_DEPTH
    """How many tasks downstream, one behind the other, hold a task's determinants (D3)."""
    determinant_flush: str = "off"
    """"background": determinants go to files, too, and are then neither shared further nor lost by failures."""
    durability: str = "process"
    """What must not end what was promised to stay: "process", the death of every process; "os", also loss of power."""
    checkpoint_interval_s: float = 1.0
    standbys: str = "per-task"
    """"per-task", or the size of a pool that all tasks share, as text ("0" for none: cold restarts)."""
    on_error: str = "stop"
    """What a record does on which user code raises: "stop" the job, or go to the "dead-letter" output."""
    dead_letters: str = ""
    """Directory of the dead-letter output; default `dead-letters` in the job's directory."""
    hidden_nondeterminism: str = "capture"
    """What becomes of `time.time()`, `random.random()`, `uuid.uuid4()` … in an operator: "capture" routes them to the
    causal services, "refuse" stops the job, "allow" leaves them alone, for replays to stumble on."""
    state: str = "memory"
    """Where operators keep their state: "memory", or "disk" beyond `state_memory_bytes_max`."""
    state_memory_bytes_max: int = 256 << 20
    """What the state of one operator in one task may take in memory, about, where it is on disk."""
    state_directory: str = ""
    """Where state on disk goes; default `spill` in the job's directory."""
    key_groups: int = 128
    """Into so many groups keys are divided; the most tasks that one keyed operator can ever have."""
    credit_bytes: int = 4 << 20
    """What may be outstanding on one channel before its sender waits."""
    batch_elements_max: int = 16384
    """Elements per read of a source's partition."""
    record_bytes_max: int = 16 << 20
    """Of one record, encoded; a longer one counts as a failure of the operator that made it."""
    inflight_memory_bytes_max: int = 64 << 20
    """Per task; beyond it, in-flight elements go to disk."""
    inflight_disk_bytes_max: int = 8 << 30
    """Per task; at half of it a checkpoint begins at once, and sources wait until it is complete."""
    log_bytes_max: int = 256 << 20
    """Determinants that one task holds in memory, its own and those of others; half of it has the same effect."""
    staged_bytes_max: int = 8 << 30
    """Rows of one sink task that wait for a checkpoint (guarantee epoch), on disk; half of it has the same effect."""
    ingest_bytes_max: int = 1 << 30
    """What a source's own process (Spark) may have published that no checkpoint covers; then it waits."""
    heartbeat_ms: int = 100
    """Between two beats of a process."""
    suspect_after_ms: int = 5000
    """Silence after which a process that still exists counts as hung: it is killed and replaced.  A busy process is not
    silent, unless C code holds the interpreter's lock for so long."""
    stuck_after_ms: int = 60_000
    """The same for a process that uses the processor meanwhile: C code may hold the interpreter's lock for so long."""
    event_timeout_s: float = 0.0
    """How long user code may work on one record, timer or window before the job ends; 0 for as long as it takes."""
    sink_patience_s: float = 60.0
    """How long the store of a sink may be away before the job ends."""
    crash_loop_max: int = 5
    """Failures of one task in a row, none of them followed by a complete checkpoint, that end the job."""
    transport: str = "ipc"
    """"ipc" on one host; "tcp" over loopback, as between hosts."""
    check: bool = False
    """A standby performs every epoch of its task again from the task's own log, and compares (development)."""
    metrics_port: int = 0
    """Port of the Prometheus page on 127.0.0.1; 0 for none."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if type(value) is int:
                most = LIMITS.get(each.name, INT_MAX)
                self._check(value <= most, each.name, f"at most {most}")
        for name in ("dead_letters", "state_directory"):
            self._check("\0" not in getattr(self, name), name, "a path")
        for name, choices in _CHOICES.items():
            self._check(getattr(self, name) in choices, name, " or ".join(choices))
        self._check(
            self.determinant_flush == "off" or self.guarantee == "causal",
            "guarantee",
            "causal: only then are there determinants to write",
        )
        self._check(self.state_memory_bytes_max >= 1 << 16, "state_memory_bytes_max", "at least 65536")
        self._check(self.sharing_depth >= 1, "sharing_depth", "a whole number from 1, or full")
        self._check(0 < self.checkpoint_interval_s <= 1e6, "checkpoint_interval_s", "a number of seconds above 0")
        self._check(
            self.standbys == "per-task"
            or (self.standbys.isdecimal() and len(self.standbys) <= 4 and int(self.standbys) <= STANDBYS_MAX),
            "standbys",
            f"per-task or a number up to {STANDBYS_MAX}",
        )
        self._check(1 <= self.key_groups <= 32768, "key_groups", "1 to 32768")
        self._check(self.credit_bytes >= 1 << 16, "credit_bytes", "at least 65536")
        self._check(1 <= self.batch_elements_max <= 1 << 20, "batch_elements_max", "1 to 1048576")
        self._check(
            not self.check or self.guarantee == "causal", "guarantee", "causal: only then is there a log to check"
        )
        self._check(not self.check or self.standbys == "per-task", "standbys", "per-task: they do the checking")
        self._check(0 < self.sink_patience_s <= 1e6, "sink_patience_s", "a number of seconds above 0")
        self._check(0 <= self.event_timeout_s <= 1e6, "event_timeout_s", "a number of seconds, or 0 for no limit")
        self._check(self.staged_bytes_max >= 1 << 16, "staged_bytes_max", "at least 65536")
        for name in (
            "record_bytes_max", "inflight_memory_bytes_max", "inflight_disk_bytes_max", "log_bytes_max",
            "ingest_bytes_max", "crash_loop_max",
        ):  # fmt: skip
            self._check(getattr(self, name) >= 1, name, "at least 1")
        self._check(0 <= self.metrics_port <= 65535, "metrics_port", "a port up to 65535, or 0 for none")
        self._check(1 <= self.heartbeat_ms <= 60_000, "heartbeat_ms", "1 to 60000")
        self._check(self.heartbeat_ms * 3 <= self.suspect_after_ms, "suspect_after_ms", "at least 3 heartbeats")

    def _check(self, holds: bool, name: str, wanted: str) -> None:
        if not holds:
            raise PipelineError(f"setting {name} is {getattr(self, name)!r:.80}; give {wanted}")

    def fingerprint(self, topology: object) -> int:
        """64 bits that differ when run, graph or anything that shapes the bytes on the wire differ."""
        flushing = self.determinant_flush != "off"
        told = repr((self.run, self.guarantee, self.sharing_depth, self.key_groups, flushing, topology))
        return int.from_bytes(blake2b(told.encode(), digest_size=8).digest(), "big")

    def save(self, directory: Path) -> None:
        """Replace the file atomically: a job whose settings are gone could not be resumed."""
        fresh = directory / "job.json.new"
        fresh.write_text(seal(asdict(self)))
        fresh.replace(directory / "job.json")

    @classmethod
    def load(cls, directory: Path) -> JobConfig:
        try:
            told = unseal((directory / "job.json").read_text())
        except FileNotFoundError:
            raise PipelineError(
                f"{directory} holds no job (job.json is missing); start one with `causal run`"
            ) from None
        except (ValueError, RecursionError) as problem:
            where = directory / "job.json"
            raise PipelineError(f"{where} is damaged ({problem}); start the job afresh, without --resume") from None
        written = told.get("format", 1)
        if written != STATE_FORMAT:
            raise PipelineError(
                f"{directory} was written by another version of causal-streams (format {written!r:.20}, this one has "
                f"{STATE_FORMAT}); go on with it in that version, or begin anew"
            )
        return cls.from_mapping(told, str(directory / "job.json"))

    @classmethod
    def from_mapping(cls, told: Mapping[str, Any], where: str) -> JobConfig:
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(told) - known)
        if unknown:
            raise PipelineError(f"{where}: unknown setting {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        missing = [name for name in ("run", "name", "pipeline") if name not in told]
        if missing:
            raise PipelineError(f"{where} lacks {', '.join(missing)}; start the job afresh with `causal run`")
        for each in fields(cls):
            if each.name in told and type(told[each.name]) not in _TYPES[str(each.type)]:
                raise PipelineError(f"{where}: setting {each.name} is {told[each.name]!r:.80}; give {each.type}")
        return cls(**told)
