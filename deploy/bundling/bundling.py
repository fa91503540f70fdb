"""Runs `causal bundle`: cuts a part out of a recording, writes it to a file, and tries whether that file replays.

The job, its stores and its recording are not changed.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from causal.errors import CausalError, OperatorFailed, PipelineError
from causal.records.values import decode, encode
from deploy.bundling.redaction import hook_of, without_secrets
from deploy.exit_status import DONE, say
from deploy.jobs.chosen import chosen_recording
from deploy.printable import printable
from deploy.progress.progress_model import in_bytes
from deploy.replaying.replay_attempts import time_of
from operators.recordings.bundle import open_bundle, open_recorded
from operators.recordings.bundle_file import SUFFIX, write_bundle_file
from operators.recordings.recording import Recording
from operators.replay.bundling import Cutting, Excerpt, cut
from operators.replay.exact import Replay
from operators.runtime.forked import in_fork

TRIED_S = 3600.0
_SIZE = re.compile(r"([1-9]\d{0,8})(KB|MB|GB)", re.IGNORECASE)
_BYTES = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


def bundle(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status.

    Raises:
        PipelineError: wrong usage, a place that is not recorded, a source that cannot be read again, or too much.
        CorruptData: the recording is damaged.
        Unavailable: the recorded input cannot be read, or the store of the recording does not answer.
    """
    job, path, most = chosen_recording(arguments), Path(arguments.output), _size(arguments.max_size)
    if not path.absolute().parent.is_dir() or path.is_dir():
        raise PipelineError(f"-o {path}: use the name of a file in a directory that exists, such as bug{SUFFIX}")
    redact = None if arguments.redact is None else hook_of(arguments.redact)
    with tempfile.TemporaryDirectory(prefix="causal-bundle-") as directory:
        recording = open_recorded(job, Path(directory) / "recording")
        excerpt = _excerpt(recording, arguments)
        scratch = Path(directory) / "cut"
        scratch.mkdir()
        cutting = cut(recording, job, excerpt, scratch, without_secrets, redact)
        size = write_bundle_file(path, cutting.facts, cutting.parts, most)
        tried = _tried(path, Path(directory) / "tried")
    print(*map(printable, _lines(path, size, cutting, tried)), sep="\n", flush=True)
    for line in _warnings(recording, cutting, tried):
        say(f"warning: {line}", DONE)
    return DONE


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise PipelineError(f"--max-size {text}: use a size such as 64MB")
    return int(match[1]) * _BYTES[match[2].upper()]


def _excerpt(recording: Recording, arguments: argparse.Namespace) -> Excerpt:
    """Return the part that the arguments name.

    Raises:
        PipelineError: it is not recorded, or was performed by several versions.
    """
    task = arguments.task or ""
    if arguments.at_crash:
        failure = next((each for each in reversed(recording.failures()) if task in ("", each.task)), None)
        if failure is None:
            what = f"{task} did not die" if task else "no task died"
            raise PipelineError(f"{what} in the recorded epochs; see `causal recordings`")
        return Excerpt(failure.task, failure.epoch, failure.epoch, {"at_crash": True})
    if arguments.around is not None:
        at_ns = time_of(arguments.around)
        epoch = recording.epoch_at(at_ns)
        first, last = _neighbours(recording, epoch)
        at = datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat(timespec="milliseconds")
        return Excerpt(_named(recording, task, epoch), first, last, {"at": at})
    first, last = _epochs(arguments.epoch)
    if recording.version_at(first).number != recording.version_at(last).number:
        raise PipelineError(
            f"--epoch {arguments.epoch}: several versions of the code performed these epochs; name one's"
        )
    return Excerpt(_named(recording, task, first), first, last, {"epoch": last})


def _named(recording: Recording, task: str, epoch: int) -> str:
    if not task:
        tasks = recording.version_at(epoch).tasks
        raise PipelineError(f"name the task with --task; the tasks are {', '.join(tasks)}")
    return task


def _epochs(text: str) -> tuple[int, int]:
    first, dots, last = text.partition("..")
    if not first.isdecimal() or (dots and not last.isdecimal()) or (dots and int(last) < int(first)):
        raise PipelineError(f"--epoch {text}: use an epoch of the recording, or two such as 120..125")
    return int(first), int(last if dots else first)


def _neighbours(recording: Recording, epoch: int) -> tuple[int, int]:
    """Return the epochs before and after an epoch, as far as they are recorded and of the same version."""
    run = recording.run_of(epoch)
    return max(run.start, epoch - 1), min(run[-1], epoch + 1)


def _tried(path: Path, scratch: Path) -> tuple[int, str]:
    """Replay the file in a fork; return the number of channels compared, and why it ended early, if it did."""
    for folder in ("files", "replay"):
        (scratch / folder).mkdir(parents=True)

    def tried() -> bytes:
        replay = None
        try:
            bundle = open_bundle(path, scratch / "files")
            replay = Replay(bundle, path, bundle.first, scratch / "replay")
            while replay.epoch <= bundle.last:
                replay.perform_epoch()
        except OperatorFailed as problem:
            return encode([0 if replay is None else replay.cone.verified, "" if bundle.raised else str(problem)])
        except CausalError as problem:
            return encode([0 if replay is None else replay.cone.verified, str(problem)])
        return encode([replay.cone.verified, ""])

    verified, problem = decode(in_fork(tried, TRIED_S))
    return verified, problem


def _lines(path: Path, size: int, cutting: Cutting, tried: tuple[int, str]) -> Iterator[str]:
    facts = cutting.facts
    yield (
        f"{path}: epochs {facts['first']} to {facts['last']} of {facts['job']}, {', '.join(facts['tasks'])}; "
        f"{cutting.records:,} records of sources, {in_bytes(size)}"
    )
    if facts["raised"]:
        yield f"it ends with the recorded exception: {facts['raised']}"
    if not tried[1]:
        verified = (
            "nothing is compared, because it is redacted" if facts["redacted"] else f"{tried[0]:,} channels verified"
        )
        yield f"it replays without the job: {verified}"
    yield f"replay it with: causal replay {path}, or in a test with operators.testing.replay"


def _warnings(recording: Recording, cutting: Cutting, tried: tuple[int, str]) -> Iterator[str]:
    facts = cutting.facts
    if cutting.differs:
        yield f"the recording does not replay to the end of these epochs: {cutting.differs}"
    elif tried[1]:
        why = "; keep the fields by which the stream is keyed" if facts["redacted"] else ""
        yield f"the file does not replay to its end: {tried[1]}{why}"
    if facts["redacted"]:
        kept = [f"{in_bytes(cutting.state_bytes)} of state"] if cutting.state_bytes else []
        kept += ["recorded answers of the outside world"] if cutting.answers else []
        yield f"only records of sources are redacted; the file also contains {', '.join([*kept, 'the code'])}"
    if facts["settings_hidden"]:
        yield f"settings that look like secrets are replaced: {', '.join(facts['settings_hidden'])}"
