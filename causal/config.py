"""The settings of a job, which are written once to `job.json` and read by every process of the job.

Unknown keys are refused rather than ignored. Every frame carries a fingerprint of the settings that must be the same in
all processes, so frames from a process of another job or version are never accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from causal.errors import PipelineError
from causal.recording_window import FORM, OFF, window_of
from causal.sealed import seal, unseal
from causal.topology import FULL_DEPTH

_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "Mapping[str, str]": (dict,),
}
"""The annotated type of a field → the JSON types that are accepted for it."""
GUARANTEES = ("causal", "epoch", "at-least-once", "none")
ON_ERROR = ("stop", "dead-letter")
PROCESSES = ("", "per-task", "one", "stages")
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
    "processes": PROCESSES,
    "state": STATE,
    "transport": ("ipc", "tcp"),
}
MASTERS = ("spark://", "k8s://", "local-cluster[")
"""The prefixes of master URLs whose executors can run agents, in addition to `yarn`."""
STATE_FORMAT = 2
"""The format version of job directories and savepoints; raised if a version writes data that others cannot read."""
STANDBYS_MAX = 1000
"""The maximum number of processes in a standby pool."""
RECORD_BYTES_MAX = 32 << 20
"""The maximum of `record_bytes_max`, because a record and the overhead of its chunk have to fit into one chunk."""
INT_MAX = 1 << 53
"""The limit for integers without a limit of their own; every settings format represents integers up to it exactly."""
ABOVE_0 = math.ulp(0.0)
"""The smallest number above 0."""
BUFFER_BYTES_MIN = 1 << 16
"""The smallest buffer size with which a task can work."""


class Limit(NamedTuple):
    """The range of a setting, and the advice given in an error; by default, the advice is the violated limit."""

    least: float
    most: float = INT_MAX
    wanted: str = ""


LIMITS = {
    "sharing_depth": Limit(1, FULL_DEPTH, f"a whole number from 1 to {FULL_DEPTH}, or full"),
    "checkpoint_interval_s": Limit(ABOVE_0, 1e6, "a number of seconds above 0"),
    "state_memory_bytes_max": Limit(BUFFER_BYTES_MIN),
    "key_groups": Limit(1, 32768, "1 to 32768"),
    "channel_window_bytes": Limit(BUFFER_BYTES_MIN),
    "batch_elements_max": Limit(1, 1 << 20, "1 to 1048576"),
    "latency_target_ms": Limit(0, 10_000, "0 to 10000"),
    "replay_target_ms": Limit(0, 10**9),
    "record_bytes_max": Limit(1, RECORD_BYTES_MAX),
    "inflight_memory_bytes_max": Limit(1),
    "inflight_disk_bytes_max": Limit(1),
    "log_bytes_max": Limit(1),
    "staged_bytes_max": Limit(BUFFER_BYTES_MIN),
    "ingest_bytes_max": Limit(1),
    "kept_input_bytes_max": Limit(0),
    "heartbeat_ms": Limit(1, 60_000, "1 to 60000"),
    "heartbeat_timeout_ms": Limit(3, 10**9),
    "stuck_after_ms": Limit(0, 10**9),
    "event_timeout_s": Limit(0, 1e6, "a number of seconds, or 0 for no limit"),
    "sink_retry_timeout_s": Limit(ABOVE_0, 1e6, "a number of seconds above 0"),
    "crash_loop_max": Limit(1, 10**6),
    "agents": Limit(1, 1000, "a number of executors from 1 to 1000"),
    "hosts_expected": Limit(0, 10_000, "a number of hosts up to 10000, or 0"),
    "host_timeout_ms": Limit(3, 10**9),
    "rebalance_after_s": Limit(0, 1e6, "a number of seconds, or 0 for never"),
    "metrics_port": Limit(0, 65535, "a port up to 65535, or 0 for none"),
}


def wanted(name: str) -> str:
    """Return the advice for an error about this setting; empty if the advice depends on the value."""
    return (
        " or ".join(filter(None, _CHOICES[name])) if name in _CHOICES else LIMITS[name].wanted if name in LIMITS else ""
    )


_WHOLE = Limit(-INT_MAX)
"""The range of all integers."""
RENAMED = {
    "sink_patience_s": "sink_retry_timeout_s",
    "suspect_after_ms": "heartbeat_timeout_ms",
    "credit_bytes": "channel_window_bytes",
    "check": "verify_replay",
}
"""The setting names before version 0.2.0, which are still accepted in files."""


@dataclass(frozen=True, slots=True)
class JobConfig:
    """The settings of one run of one pipeline.

    Sizes are in bytes. A time has the unit that its name ends with.
    """

    run: str
    """The identifier of this run; `--resume` keeps it, and any other start creates a new one."""
    name: str
    """The pipeline's name."""
    pipeline: str
    """The absolute path of the pipeline file at the time when its code was archived."""
    code: str = ""
    """The digest of the code archive in `code/` of the job directory; every process of the job loads this archive."""
    first_incarnation: int = 0
    """The lowest incarnation of this version of the job; lower incarnations belong to an earlier version."""
    format: int = STATE_FORMAT
    """The format version of the state on disk."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The pipeline's own settings as strings, which the pipeline file reads from `pipeline.settings`: a table in the
    settings file, or `--set NAME=VALUE` on the command line."""
    guarantee: str = "causal"
    """The guarantee: with `causal` and `epoch`, a failure does not change the output (with `epoch`, rows wait for
    checkpoints); with `at-least-once`, rows may be repeated; with `none`, rows may be missing."""
    sharing_depth: int = FULL_DEPTH
    """The number of consecutive tasks downstream that hold a task's determinants (D3)."""
    determinant_flush: str = "off"
    """Whether determinants are also written to files, so that they no longer need holders: `off` or `background`."""
    durability: str = "process"
    """The failures that acknowledged data survives: `process`, the death of every process; `os`, also power loss."""
    checkpoint_interval_s: float = 1.0
    """The time between two checkpoints; no checkpoint is taken while no task performs anything."""
    replay_target_ms: int = 0
    """The maximum amount of work that a task may have to repeat after a failure: a checkpoint begins before more work
    has accumulated; with 0, only the time between checkpoints limits the work."""
    standbys: str = "per-task"
    """The standbys: `per-task`; `hot` for one standby per task that performs everything its task performs;
    `hot:OPERATOR,OPERATOR` to restrict hot standbys to these operators; or, as text, the size of a pool that all tasks
    share ("0" for no standbys: recoveries are cold starts)."""
    processes: str = ""
    """The grouping of operators into processes: `per-task`; `one` for one process that performs everything that may
    share it; or `stages` for one process for the sources and one for the rest; empty: as the pipeline specifies, or
    `per-task`."""
    on_error: str = "stop"
    """The effect of an exception that user code raises for a record: `stop` of the job, or a `dead-letter`."""
    dead_letters: str = ""
    """The directory for dead letters; by default, `dead-letters` in the job directory."""
    hidden_nondeterminism: str = "capture"
    """The treatment of `time.time()`, `random.random()`, `uuid.uuid4()` … in an operator: `capture` logs them, `refuse`
    stops the job, and `allow` does not intervene, so that replays may diverge."""
    state: str = "memory"
    """The place of operators' state: `memory`, or `disk` for what is beyond `state_memory_bytes_max`."""
    state_memory_bytes_max: int = 256 << 20
    """The approximate amount of memory for the state of one operator in one task, if state is on disk."""
    state_directory: str = ""
    """The directory for state on disk and encoded parts of snapshots; by default, `spill` in the job directory."""
    key_groups: int = 128
    """The number of groups into which keys are divided; it is the maximum number of tasks of a keyed operator."""
    channel_window_bytes: int = 4 << 20
    """The number of bytes that may be outstanding on one channel before its sender waits."""
    batch_elements_max: int = 16384
    """The maximum number of elements per read of a source's partition."""
    latency_target_ms: int = 4
    """The maximum time that elements wait at a source for further elements, if few arrive at a time; 0: no waiting."""
    record_bytes_max: int = 16 << 20
    """The maximum encoded size of one record, up to 33554432; a larger record is an error of the operator that emitted
    it."""
    inflight_memory_bytes_max: int = 64 << 20
    """The maximum size of the in-flight elements that a task keeps in memory; further elements are moved to disk."""
    inflight_disk_bytes_max: int = 8 << 30
    """The maximum size of all in-flight elements of a task, in memory and on disk; at half of this size, a checkpoint
    begins immediately, and sources wait until it is complete."""
    log_bytes_max: int = 256 << 20
    """The maximum size of the determinants that a task holds in memory, both its own and those of other tasks; half of
    this size has the same effect."""
    staged_bytes_max: int = 8 << 30
    """The maximum size of the rows of a sink task that wait for a checkpoint (guarantee `epoch`); half of this size has
    the same effect, and the job ends if the size exceeds the maximum by 1 GiB."""
    ingest_bytes_max: int = 1 << 30
    """The maximum number of bytes that a source's own process (Spark, standard input, HTTP) may have published without
    a checkpoint that covers them; beyond that, the next batch waits unless all published data has been read."""
    kept_input_bytes_max: int = 1 << 30
    """The number of bytes that such a process may publish after a savepoint before their input is no longer kept for a
    rollback to it, for each source; 0: input is not kept for savepoints."""
    heartbeat_ms: int = 100
    """The time between two heartbeats of a process."""
    heartbeat_timeout_ms: int = 5000
    """The silence after which a process that still exists is considered hung, and is killed and replaced; a busy
    process is silent only while C code holds the interpreter lock."""
    stuck_after_ms: int = 60_000
    """The corresponding time for a process that uses the processor, because C code may hold the interpreter lock for
    this long."""
    event_timeout_s: float = 0.0
    """The maximum time for user code to process one record, timer or window before the job ends; 0: no limit."""
    sink_retry_timeout_s: float = 60.0
    """The maximum time for which a sink's store may be unavailable before the job ends."""
    crash_loop_max: int = 5
    """The number of failures of one task, without two complete checkpoints between them, after which the job ends."""
    transport: str = "ipc"
    """The transport: `ipc` within one host, or `tcp` over loopback, in the same way as between hosts."""
    listen: str = ""
    """The address at which agents on other hosts join, `tcp://address:port`; empty for a job on one machine."""
    key: str = ""
    """The path of the supervisor's key file; empty for a job that uses loopback without keys."""
    hosts: str = ""
    """The path of the roster, `hosts.toml`, which contains the public keys of the hosts that may join."""
    store: str = ""
    """The URL of the storage that all hosts share (`file:///…` or `s3://bucket/prefix`); empty for one machine."""
    on: str = ""
    """The master of a Spark cluster whose executors are the hosts of the job; empty for none."""
    agents: int = 2
    """The number of executors to use as hosts."""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Spark configuration entries for these executors."""
    hosts_expected: int = 0
    """The number of hosts that must join before the first tasks start, for which the job waits at most 10 s (600 s with
    `on`); by default, the number of hosts in the roster; 0: the hosts that join within 2 s."""
    host_timeout_ms: int = 3000
    """The silence of an agent after which its host is considered lost, and all its tasks are promoted elsewhere."""
    rebalance_after_s: float = 30.0
    """The time after which a host that has joined receives its share of the tasks, one promotion at a time (guarantee
    `causal`); 0: tasks stay where they are."""
    verify_replay: bool = False
    """Whether standbys perform every epoch of their tasks again and compare the results; intended for development."""
    record: str = OFF
    """The window of the recording from which the job can be replayed: a time and a size, such as `24h,10GB`; or
    `off`."""
    input: str = ""
    """The directory of the recorded job whose input the sources read (`causal run --input`); empty: they read what
    they are declared to read."""
    metrics_port: int = 0
    """The port of the Prometheus page; 0: no page."""
    metrics_listen: str = "127.0.0.1"
    """The address of the Prometheus page: one of this machine's addresses, or `0.0.0.0` or `::` for all of them."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if type(value) in (int, float):
                least, most, wanted = LIMITS.get(each.name, _WHOLE)
                broken = f"at least {least}" if value < least else f"at most {most}"
                self._check(least <= value <= most, each.name, wanted or broken)
        for name, choices in _CHOICES.items():
            self._check(getattr(self, name) in choices, name, " or ".join(filter(None, choices)))
        for name, wanted, holds in _CONDITIONS:
            self._check(holds(self), name, wanted)

    def _check(self, holds: bool, name: str, wanted: str) -> None:
        if not holds:
            raise PipelineError(f"setting {name} is {getattr(self, name)!r:.80}; it must be {wanted}")

    @property
    def place_in_store(self) -> str:
        """The prefix of all objects that this run keeps in the shared store."""
        return f"{self.name}/{self.run}"

    @property
    def own_standbys(self) -> bool:
        """Whether each task has its own standby."""
        return self.standbys == "per-task" or self.hot

    @property
    def hot(self) -> bool:
        """Whether the job has hot standbys."""
        kind, separator, names = self.standbys.partition(":")
        return kind == "hot" and bool(names) == bool(separator)

    @property
    def hot_operators(self) -> tuple[str, ...]:
        """The operators to which hot standbys are restricted; empty if there is no restriction or no hot standby."""
        return tuple(self.standbys.partition(":")[2].split(",")) if ":" in self.standbys else ()

    def fingerprint(self, topology: object) -> int:
        """Return a 64-bit number that depends on the run, the graph and all settings that affect the frames."""
        flushing = self.determinant_flush != "off"
        content = repr((self.run, self.guarantee, self.sharing_depth, self.key_groups, flushing, topology))
        return int.from_bytes(blake2b(content.encode(), digest_size=8).digest(), "big")

    def save(self, directory: Path) -> None:
        """Replace the file atomically, because a job without its settings could not be resumed."""
        fresh = directory / "job.json.new"
        fresh.write_text(seal(asdict(self)))
        fresh.replace(directory / "job.json")

    def for_hosts(self) -> str:
        """Return the sealed settings that differ from their defaults.

        The defaults are left out because an agent of the previous version does not know newer settings.
        """
        return seal({name: value for name, value in asdict(self).items() if value != _DEFAULTS.get(name)})

    @classmethod
    def load(cls, directory: Path) -> JobConfig:
        try:
            values = unseal((directory / "job.json").read_text())
        except FileNotFoundError:
            raise PipelineError(
                f"{directory} does not contain a job (job.json is missing); start one with `causal run`"
            ) from None
        except (ValueError, RecursionError) as problem:
            where = directory / "job.json"
            raise PipelineError(f"{where} is damaged ({problem}); start the job again without --resume") from None
        written = values.get("format", 1)
        if written != STATE_FORMAT:
            raise PipelineError(
                f"{directory} was written by another version of causal-streams (format {written!r:.20}; this "
                f"version uses format {STATE_FORMAT}); resume it with that version, or start a new job"
            )
        return cls.from_mapping(values, str(directory / "job.json"))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], where: str) -> JobConfig:
        values = {RENAMED.get(name, name): value for name, value in values.items()}
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise PipelineError(
                f"{where}: unknown setting {', '.join(unknown)}; the known settings are {', '.join(sorted(known))}"
            )
        missing = [name for name in ("run", "name", "pipeline") if name not in values]
        if missing:
            raise PipelineError(f"{where} lacks {', '.join(missing)}; start the job again with `causal run`")
        for each in fields(cls):
            if each.name in values and type(values[each.name]) not in _TYPES[str(each.type)]:
                raise PipelineError(
                    f"{where}: setting {each.name} is {values[each.name]!r:.80}; it must be of type {each.type}"
                )
        return cls(**values)


def _has_standbys(config: JobConfig) -> bool:
    size = config.standbys
    return config.own_standbys or (size.isdecimal() and len(size) <= 4 and int(size) <= STANDBYS_MAX)


def _is_window(text: str) -> bool:
    try:
        window_of(text)
    except ValueError:
        return False
    return True


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _has_cores(config: JobConfig) -> bool:
    cores = config.spark_conf.get("spark.executor.cores", "1")
    return cores.isdecimal() and int(cores) > 0


_CONDITIONS: tuple[tuple[str, str, Callable[[JobConfig], bool]], ...] = (
    ("dead_letters", "a path", lambda c: "\0" not in c.dead_letters),
    ("state_directory", "a path", lambda c: "\0" not in c.state_directory),
    ("standbys", f"per-task, hot, hot:OPERATOR,…, or a number up to {STANDBYS_MAX}", _has_standbys),
    (
        "standbys",
        ("per-task, because hot standbys do the checking"),
        lambda c: not c.verify_replay or c.standbys == "per-task",
    ),
    (
        "guarantee",
        "causal, because other guarantees write no determinants",
        lambda c: c.determinant_flush == "off" or c.guarantee == "causal",
    ),
    (
        "guarantee",
        ("causal, because a hot standby performs a determinant log"),
        lambda c: not c.hot or c.guarantee == "causal",
    ),
    (
        "guarantee",
        "causal, because other guarantees have no determinant log to check",
        lambda c: not c.verify_replay or c.guarantee == "causal",
    ),
    ("record", FORM, lambda c: _is_window(c.record)),
    (
        "guarantee",
        "causal, because other guarantees have no determinant log to record",
        lambda c: c.record == OFF or c.guarantee == "causal",
    ),
    ("heartbeat_timeout_ms", "at least 3 heartbeats", lambda c: c.heartbeat_timeout_ms >= 3 * c.heartbeat_ms),
    (
        "replay_target_ms",
        "0, or at least 2 heartbeats",
        lambda c: not c.replay_target_ms or c.replay_target_ms >= 2 * c.heartbeat_ms,
    ),
    ("host_timeout_ms", "at least 3 heartbeats", lambda c: c.host_timeout_ms >= 3 * c.heartbeat_ms),
    ("on", "spark://HOST:PORT, yarn or k8s://…", lambda c: c.on in ("", "yarn") or c.on.startswith(MASTERS)),
    ("spark_conf", "one with spark.executor.cores as a number from 1", _has_cores),
    ("listen", "tcp://ADDRESS:PORT", lambda c: not c.listen or c.listen.startswith("tcp://")),
    ("metrics_listen", "an address of this machine, such as 127.0.0.1 or 0.0.0.0", lambda c: _is_ip(c.metrics_listen)),
    (
        "store",
        "file:///DIRECTORY or s3://BUCKET/PREFIX",
        lambda c: not c.store or c.store.startswith(("file:///", "s3://")),
    ),
)
"""(setting, required value, check of a job's settings) for conditions that limits and choices do not express."""
_DEFAULTS = asdict(JobConfig("", "", "", format=0))  # no job has format 0, so the file always contains the format
