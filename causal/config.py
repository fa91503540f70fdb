"""The settings of a job, which are written once to `job.json` and read by every process of the job.

Unknown keys are refused rather than ignored. The fingerprint that every frame carries covers the settings that must
agree in all processes, so frames from a process of another job or version are never accepted.
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
from causal.sealed import seal, unseal
from causal.topology import FULL_DEPTH

_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "Mapping[str, str]": (dict,),
}
"""The JSON types that are accepted for a field of each type."""
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
MASTERS = ("spark://", "k8s://", "local-cluster[")
"""The beginnings of masters with executors in which agents can run, besides `yarn`."""
STATE_FORMAT = 2
"""The format of a job's directory and of savepoints; raised if a version writes data that others cannot read."""
STANDBYS_MAX = 1000
"""The maximum number of processes in a pool of standbys."""
RECORD_BYTES_MAX = 32 << 20
"""The maximum of `record_bytes_max`, because a record has to fit into a chunk together with the chunk's overhead."""
INT_MAX = 1 << 53
"""The limit of whole numbers without a limit of their own, up to which every format of settings is exact."""
ABOVE_0 = math.ulp(0.0)
"""The smallest number above 0."""
BUFFER_BYTES_MIN = 1 << 16
"""The smallest buffer with which a task can work."""


class Limit(NamedTuple):
    """The range of a setting, and the advice that an error gives; by default, the advice is the violated limit."""

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
    "heartbeat_ms": Limit(1, 60_000, "1 to 60000"),
    "heartbeat_timeout_ms": Limit(3, 10**9),
    "stuck_after_ms": Limit(0, 10**9),
    "event_timeout_s": Limit(0, 1e6, "a number of seconds, or 0 for no limit"),
    "sink_retry_timeout_s": Limit(ABOVE_0, 1e6, "a number of seconds above 0"),
    "crash_loop_max": Limit(1, 10**6),
    "agents": Limit(1, 1000, "a number of executors from 1 to 1000"),
    "hosts_expected": Limit(0, 10_000, "a number of hosts up to 10000, or 0"),
    "host_timeout_ms": Limit(3, 10**9),
    "metrics_port": Limit(0, 65535, "a port up to 65535, or 0 for none"),
}


def wanted(name: str) -> str:
    """Return the advice in an error about this setting; empty if the advice depends on the value."""
    return " or ".join(_CHOICES[name]) if name in _CHOICES else LIMITS[name].wanted if name in LIMITS else ""


_WHOLE = Limit(-INT_MAX)
"""Any whole number."""
RENAMED = {
    "sink_patience_s": "sink_retry_timeout_s",
    "suspect_after_ms": "heartbeat_timeout_ms",
    "credit_bytes": "channel_window_bytes",
    "check": "verify_replay",
}
"""The names of settings before version 0.2.0; files with those names are read as before."""


@dataclass(frozen=True, slots=True)
class JobConfig:
    """One run of one pipeline.

    Sizes are in bytes, times in the unit that ends the name.
    """

    run: str
    """The identity of this run; kept by --resume, new otherwise."""
    name: str
    """The pipeline's name."""
    pipeline: str
    """The absolute path of the pipeline file, as it was when its code was archived."""
    code: str = ""
    """The digest of the archive of the code, in `code/` of the job's directory: what every process of the job loads."""
    first_incarnation: int = 0
    """The lowest incarnation of this version of the job: what lower ones have logged is an earlier version's."""
    format: int = STATE_FORMAT
    """The format of the state on disk."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings of the pipeline's own, which its file reads from `pipeline.settings`, as text: a table in the file,
    `--set NAME=VALUE` on the command line."""
    guarantee: str = "causal"
    """The guarantee: with `causal` and `epoch` a failure does not change the output (`epoch`: rows wait for
    checkpoints), with `at-least-once` rows may come again, with `none` rows may be missing."""
    sharing_depth: int = FULL_DEPTH
    """The number of consecutive tasks downstream that hold a task's determinants (D3)."""
    determinant_flush: str = "off"
    """The flushing of determinants, `off` or `background`: they also go to files, and need no holder then."""
    durability: str = "process"
    """The failures that acknowledged data survives: `process`, the death of every process; `os`, also loss of power."""
    checkpoint_interval_s: float = 1.0
    """The time between two checkpoints; while no task performs anything there are none."""
    replay_target_ms: int = 0
    """The longest work of a task that a failure may make it repeat: a checkpoint begins before there is more of it; 0:
    no bound but the time between checkpoints."""
    standbys: str = "per-task"
    """The standbys: `per-task`; `hot` for one per task that performs what its task performs, `hot:OPERATOR,OPERATOR`
    for these operators alone; or the size of a pool that all tasks share, as text ("0" for none: cold starts)."""
    on_error: str = "stop"
    """The effect of a record on which user code raises: `stop` of the job, or a `dead-letter`."""
    dead_letters: str = ""
    """The directory of dead letters; by default `dead-letters` in the job's."""
    hidden_nondeterminism: str = "capture"
    """The treatment of `time.time()`, `random.random()`, `uuid.uuid4()` … in an operator: `capture` logs them, `refuse`
    stops the job, `allow` leaves them alone, so that replays may diverge."""
    state: str = "memory"
    """The place of operators' state: `memory`, or `disk` for what is beyond `state_memory_bytes_max`."""
    state_memory_bytes_max: int = 256 << 20
    """The approximate memory of the state of one operator in one task, if state is on disk."""
    state_directory: str = ""
    """The directory of state on disk, and of what a snapshot has encoded of it; by default `spill` in the job's."""
    key_groups: int = 128
    """The number of groups that keys are divided into: the most tasks that one keyed operator can ever have."""
    channel_window_bytes: int = 4 << 20
    """The bytes that may be outstanding on one channel before its sender waits."""
    batch_elements_max: int = 16384
    """The most elements per read of a source's partition."""
    latency_target_ms: int = 4
    """The longest time for which elements wait at a source for others, where they come a few at a time; 0: none."""
    record_bytes_max: int = 16 << 20
    """The most bytes of one record, encoded, up to 33554432; a longer one is an error of the operator that made it."""
    inflight_memory_bytes_max: int = 64 << 20
    """The in-flight elements in memory, per task; beyond it they go to disk."""
    inflight_disk_bytes_max: int = 8 << 30
    """All in-flight elements, per task, in memory and on disk; at half of it a checkpoint begins immediately, and
    sources wait until it is complete."""
    log_bytes_max: int = 256 << 20
    """The determinants that one task holds in memory, its own and those of others; half of it has the same effect."""
    staged_bytes_max: int = 8 << 30
    """The rows of a sink task that wait for a checkpoint (guarantee `epoch`); half of it has the same effect, and 1 GiB
    more than it ends the job."""
    ingest_bytes_max: int = 1 << 30
    """The bytes that a source's own process (Spark, standard input, HTTP) may have published and no checkpoint covers;
    with more, the next batch waits, unless nothing is unread."""
    heartbeat_ms: int = 100
    """The time between two heartbeats of a process."""
    heartbeat_timeout_ms: int = 5000
    """The silence after which a process that still exists counts as hung, and is killed and replaced; a busy one is
    silent only while C code holds the interpreter's lock."""
    stuck_after_ms: int = 60_000
    """The same for a process that uses the processor, because C code may hold the interpreter's lock for this long."""
    event_timeout_s: float = 0.0
    """The longest time for user code on one record, timer or window before the job ends; 0: no limit."""
    sink_retry_timeout_s: float = 60.0
    """The longest time that the store of a sink may be unavailable before the job ends."""
    crash_loop_max: int = 5
    """The number of failures of one task in a row, without two complete checkpoints between them, that end the job."""
    transport: str = "ipc"
    """The transport: `ipc` on one host, or `tcp` over loopback, as between hosts."""
    listen: str = ""
    """The address at which agents of other hosts join, `tcp://address:port`; empty for a job on one machine."""
    key: str = ""
    """The path of the supervisor's key file; empty for a job that listens on loopback without keys."""
    hosts: str = ""
    """The path of the roster, `hosts.toml`: the public keys of the hosts that may join."""
    store: str = ""
    """The URL of the storage that all hosts share (`file:///…` or `s3://bucket/prefix`); empty for one machine."""
    on: str = ""
    """The master of a Spark cluster whose executors are hosts of the job; empty for none."""
    agents: int = 2
    """The number of those executors."""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Entries of Spark's configuration for them."""
    hosts_expected: int = 0
    """The number of hosts that the first tasks wait for, for at most 10 s (600 s with `on`); by default those of the
    roster; 0: those that join within 2 s."""
    host_timeout_ms: int = 3000
    """The silence of an agent after which its host counts as lost: all its tasks are promoted elsewhere."""
    verify_replay: bool = False
    """Whether standbys perform every epoch of their tasks again and compare: for development."""
    metrics_port: int = 0
    """The port of the Prometheus page; 0: none."""
    metrics_listen: str = "127.0.0.1"
    """The address of the Prometheus page: one of this machine, or `0.0.0.0` or `::` for all of them."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if type(value) in (int, float):
                least, most, wanted = LIMITS.get(each.name, _WHOLE)
                broken = f"at least {least}" if value < least else f"at most {most}"
                self._check(least <= value <= most, each.name, wanted or broken)
        for name, choices in _CHOICES.items():
            self._check(getattr(self, name) in choices, name, " or ".join(choices))
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
        """Whether each task has a standby of its own."""
        return self.standbys == "per-task" or self.hot

    @property
    def hot(self) -> bool:
        """Whether there are hot standbys."""
        kind, separator, names = self.standbys.partition(":")
        return kind == "hot" and bool(names) == bool(separator)

    @property
    def hot_operators(self) -> tuple[str, ...]:
        """The operators to which hot standbys are restricted; empty if all operators have them or none has."""
        return tuple(self.standbys.partition(":")[2].split(",")) if ":" in self.standbys else ()

    def fingerprint(self, topology: object) -> int:
        """Return 64 bits that depend on the run, the graph and all settings that affect the bytes on the wire."""
        flushing = self.determinant_flush != "off"
        content = repr((self.run, self.guarantee, self.sharing_depth, self.key_groups, flushing, topology))
        return int.from_bytes(blake2b(content.encode(), digest_size=8).digest(), "big")

    def save(self, directory: Path) -> None:
        """Replace the file atomically: a job without its settings could not be resumed."""
        fresh = directory / "job.json.new"
        fresh.write_text(seal(asdict(self)))
        fresh.replace(directory / "job.json")

    def for_hosts(self) -> str:
        """Return the settings that are not at their defaults, sealed: an agent of the version before knows no newer
        ones.
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
"""(setting, what to give, whether a job's settings are as they must be) beyond limits and choices."""
_DEFAULTS = asdict(JobConfig("", "", "", format=0))  # a reader always checks the format
