"""The names and contents of a recording's files, from which a job can be replayed (0053).

    recording/logs/<task>/e<epoch>-i<incarnation>.log   a task's own log of one epoch, and the cut that it reached
    recording/logs/<task>/u<epoch>-i<incarnation>.log   the same of an epoch that the process has not finished
    recording/index/v<number>.json                      a version of the job: its settings, with the digest of its code
    recording/index/c<epoch>-v<number>.json             a checkpoint that is kept, and the files that restore it
    recording/index/e<epoch>.json                       an epoch whose checkpoint completed: where its logs are
    recording/index/i<epoch>-v<number>.json             replaces both for the epochs up to the next checkpoint
    recording/logs/<task>/p<epoch>-v<number>.logs       replaces the logs of these epochs
    recording/checkpoints/…, recording/code/…           the snapshots and code archives, named as in the job directory

Each is created once, complete or not at all, and contains a digest. Names and paths in the index are relative to
`recording/`. A log without an entry in the index does not exist for a reader, except that what the tasks had performed
when the job ended is a *tail*: it follows on the last epoch if the log of every task is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import lz4.block

from causal.cut import Cut
from causal.errors import CorruptData, PeerViolation
from causal.records.values import decode, encode
from causal.sealed import seal, unseal
from causal.snapshot_files import SnapshotFile

DIRECTORY = "recording"
INPUT = "recorded-input"
"""The directory, within that of a job on recorded input, from which its sources read."""
INDEX = "index"
LOGS = "logs"
CHECKPOINTS = "checkpoints"
CODE = "code"
FORMAT = 1
"""The version of the format; a recording with another one is refused."""

_RATIO_MAX = 256
"""More than LZ4 can shrink anything; a file that states a larger log is damaged."""

FAILURE_CHARS_MAX = 2000
"""The maximum length of the description of an exception."""

_LOG = re.compile(r"([eu])(\d+)-i(\d+)\.log(\.tmp)?")
_VERSION = re.compile(r"v(\d{6})\.json")
_KEPT = re.compile(r"c(\d{8,})-v(\d{6})\.json")
_EPOCH = re.compile(r"e(\d{8,})\.json")
_INTERVAL = re.compile(r"i(\d{8,})-v(\d{6})\.json")


@dataclass(frozen=True, slots=True)
class EpochLog:
    """A task's own log of one epoch.

    Attributes:
        reached: the cut at the barrier that ended the epoch; in an unfinished epoch, the position of the task when its
            process ended, with the number of the epoch itself.
        replayed: the first so many bytes were replayed by the incarnation that wrote this; the one before it died after
            these bytes.
        failure: the exception of the last event of an unfinished epoch; empty if there was none.
        ended_ns: the wall-clock time at which the process ended in an unfinished epoch; otherwise 0.
    """

    log: bytes
    reached: Cut
    replayed: int = 0
    failure: str = ""
    ended_ns: int = 0

    def parts(self) -> list[bytes]:
        """Return the parts of its file."""
        packed = lz4.block.compress(self.log, store_size=False) if self.log else b""
        body = min(self.log, packed, key=len)  # of equal sizes the log itself, because `of` compares them
        ended = [self.failure[:FAILURE_CHARS_MAX], self.ended_ns] if self.ended_ns else []
        return [encode([FORMAT, len(self.log), self.replayed, *ended]), self.reached.pack(), body]

    @classmethod
    def of(cls, parts: Sequence[bytes], where: str) -> EpochLog:
        """Read the parts of a file.

        Raises:
            CorruptData: they are not those of a log.
        """
        try:
            head, cut, body = parts
            fields: Any = decode(head)
            version, size, replayed, *ended = fields
            failure, ended_ns = ended or ("", 0)
            kinds = [type(each) for each in (size, replayed, failure, ended_ns)]
            if version != FORMAT or kinds != [int, int, str, int]:
                raise ValueError(f"its format is {version!r:.20}")
            if size > _RATIO_MAX * len(body):
                raise ValueError(f"it states {size:,} bytes")
            log = body if len(body) == size else lz4.block.decompress(body, uncompressed_size=size)
            return cls(log, Cut.unpack(cut), replayed, failure, ended_ns)
        except (PeerViolation, ValueError, TypeError, lz4.block.LZ4BlockError) as problem:
            raise CorruptData(f"{where} is not the log of an epoch ({problem}); restore it from a copy") from None


def log_name(task: str, epoch: int, incarnation: int, unfinished: bool = False) -> str:
    """Return the path, relative to the recording, of the log that an incarnation writes of an epoch."""
    return f"{LOGS}/{task}/{'u' if unfinished else 'e'}{epoch:08d}-i{incarnation}.log"


def pack_name(task: str, epoch: int, version: int) -> str:
    """Return the path of the file with all logs of a task in the interval that begins at a kept checkpoint."""
    return f"{LOGS}/{task}/p{epoch:08d}-v{version:06d}.logs"


def archive_name(code: str) -> str:
    """Return the path of a code archive with this digest, relative to the recording as to the job directory."""
    return f"{CODE}/{code}.zip"


def epoch_of_log(path: str) -> int:
    """Return the epoch of a log with this path, which may be being written; -1 for another file."""
    match = _LOG.fullmatch(path.rpartition("/")[2])
    return int(match[2]) if match else -1


class UnfinishedLog(NamedTuple):
    """The name of the log of an unfinished epoch, in its parts."""

    task: str
    epoch: int
    incarnation: int


def unfinished_log(path: str) -> UnfinishedLog | None:
    """Return the parts of the path of a complete file with the log of an unfinished epoch; None for another file."""
    folder, _, name = path.rpartition("/")
    match = _LOG.fullmatch(name)
    if match is None or match[1] != "u" or match[4]:
        return None
    return UnfinishedLog(folder.partition("/")[2], int(match[2]), int(match[3]))


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """A version of the job: `config` is its settings, as `JobConfig` has them, and `tasks` the names of its tasks."""

    number: int
    at_ns: int
    config: Mapping[str, Any]
    tasks: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the entry's file."""
        return f"{INDEX}/v{self.number:06d}.json"

    def text(self) -> str:
        """Return the content of the entry's file."""
        facts = {"at_ns": self.at_ns, "config": dict(self.config), "tasks": list(self.tasks)}
        return seal({"format": FORMAT, "number": self.number, **facts})


@dataclass(frozen=True, slots=True)
class KeptEntry:
    """A complete checkpoint that is kept; `files` restore each task at the barrier of `epoch`, oldest first.

    `inputs` has the position of each partition of the sources whose input exists only in the job's ingest logs.
    """

    epoch: int
    version: int
    at_ns: int
    files: Mapping[str, tuple[SnapshotFile, ...]]
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the entry's file."""
        return f"{INDEX}/c{self.epoch:08d}-v{self.version:06d}.json"

    def text(self) -> str:
        """Return the content of the entry's file."""
        return seal(self.content())

    def content(self) -> dict[str, Any]:
        """Return the entry as it is written."""
        files = {task: [list(file) for file in each] for task, each in self.files.items()}
        inputs = {source: list(positions) for source, positions in self.inputs.items()}
        facts = {"version": self.version, "at_ns": self.at_ns, "files": files, "inputs": inputs}
        return {"format": FORMAT, "epoch": self.epoch, **facts}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> KeptEntry:
        """Return the entry with this content; the errors are those of a mapping of another form."""
        files = {
            str(task): tuple((str(path), int(size), str(digest)) for path, size, digest in each)
            for task, each in content["files"].items()
        }
        inputs = {str(source): tuple(map(int, positions)) for source, positions in content["inputs"].items()}
        return cls(int(content["epoch"]), int(content["version"]), int(content["at_ns"]), files, inputs)


@dataclass(frozen=True, slots=True)
class FailureEntry:
    """A failure of a task from which it recovered; `incarnation` is the one that replaced it.

    `replayed` is the number of elements that this one replayed, or -1 if it is not known.
    """

    task: str
    incarnation: int
    at_ns: int
    mode: str
    replayed: int
    cause: str


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """An epoch whose checkpoint, that of barrier `epoch` + 1, completed at `at_ns`.

    Attributes:
        logs: task → (incarnation that wrote the log, size of the file).
    """

    epoch: int
    version: int
    at_ns: int
    logs: Mapping[str, tuple[int, int]]
    failures: tuple[FailureEntry, ...] = ()

    @property
    def name(self) -> str:
        """The name of the entry's file."""
        return f"{INDEX}/e{self.epoch:08d}.json"

    @property
    def bytes(self) -> int:
        """The size of the logs."""
        return sum(size for _, size in self.logs.values())

    def text(self) -> str:
        """Return the content of the entry's file."""
        return seal(self.content())

    def content(self) -> dict[str, Any]:
        """Return the entry as it is written."""
        failures = [[f.task, f.incarnation, f.at_ns, f.mode, f.replayed, f.cause] for f in self.failures]
        logs = {task: list(log) for task, log in self.logs.items()}
        facts = {"version": self.version, "at_ns": self.at_ns, "logs": logs, "failures": failures}
        return {"format": FORMAT, "epoch": self.epoch, **facts}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> EpochEntry:
        """Return the entry with this content; the errors are those of a mapping of another form."""
        logs = {str(task): (int(incarnation), int(size)) for task, (incarnation, size) in content["logs"].items()}
        failures = tuple(
            FailureEntry(str(task), int(incarnation), int(at), str(mode), int(replayed), str(cause))
            for task, incarnation, at, mode, replayed, cause in content["failures"]
        )
        return cls(int(content["epoch"]), int(content["version"]), int(content["at_ns"]), logs, failures)


@dataclass(frozen=True, slots=True)
class IntervalEntry:
    """A kept checkpoint and the epochs up to the next one; the logs of the tasks in `packed` are in one file each."""

    kept: KeptEntry
    epochs: tuple[EpochEntry, ...]
    packed: frozenset[str]

    @property
    def name(self) -> str:
        """The name of the entry's file."""
        return f"{INDEX}/i{self.kept.epoch:08d}-v{self.kept.version:06d}.json"

    def text(self) -> str:
        """Return the content of the entry's file."""
        epochs = [each.content() for each in self.epochs]
        return seal({"format": FORMAT, "kept": self.kept.content(), "epochs": epochs, "packed": sorted(self.packed)})


Entry = VersionEntry | KeptEntry | EpochEntry | IntervalEntry


def is_entry(name: str) -> bool:
    """Return whether a file with this name is an entry of the index; remains of interrupted writes are not."""
    base = name.rpartition("/")[2]
    return any(pattern.fullmatch(base) for pattern in (_VERSION, _KEPT, _EPOCH, _INTERVAL))


def read_entry(name: str, text: bytes, where: str) -> Entry:
    """Read an entry of the index.

    Args:
        where: the place of the file, as shown in errors.

    Raises:
        CorruptData: the file is damaged, or was written by another version of this package.
    """
    base = name.rpartition("/")[2]
    try:
        content = unseal(text.decode())
        if content["format"] != FORMAT:
            raise CorruptData(
                f"{where} has format {content['format']!r:.20} and this version reads {FORMAT}; replay it with the "
                "version of causal-streams that recorded it"
            )
        entry: Entry
        if _VERSION.fullmatch(base):
            number, at_ns = int(content["number"]), int(content["at_ns"])
            entry = VersionEntry(number, at_ns, dict(content["config"]), tuple(map(str, content["tasks"])))
        elif _KEPT.fullmatch(base):
            entry = KeptEntry.of(content)
        elif _EPOCH.fullmatch(base):
            entry = EpochEntry.of(content)
        else:
            epochs = tuple(map(EpochEntry.of, content["epochs"]))
            entry = IntervalEntry(KeptEntry.of(content["kept"]), epochs, frozenset(map(str, content["packed"])))
        if entry.name.rpartition("/")[2] != base:
            raise ValueError("it belongs to another name")
        return entry
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise CorruptData(f"{where} is damaged ({problem}); restore it from a copy") from None
