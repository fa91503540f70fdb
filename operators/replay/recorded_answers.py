"""The answers that the outside world gave a recorded job, by request (0056).

A log has answers without their requests. So the tasks that asked are replayed exactly (0054), in a fork, and each
request is written to a file with the answer that the log has for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from causal.determinants import ANSWER, ANSWER_LZ4, CALL, CALL_LZ4, USER_FIRST, USER_LAST, Answer, DeterminantCodec
from causal.errors import Unavailable
from operators.engine.operator_chain import OperatorChain
from operators.kinds.process.outside_calls import AskStage
from operators.recordings.recording import Recording
from operators.replay.answers import Question, create, question, question_of_record
from operators.replay.exact import Replay
from operators.runtime.forked import in_fork
from operators.stage.calls import Asking

WITHIN_S = 4 * 3600.0
FILE = "answers.sqlite"
_TAGS = frozenset((CALL, CALL_LZ4, ANSWER, ANSWER_LZ4, *range(USER_FIRST, USER_LAST + 1)))


def asked_in(log: bytes) -> bool:
    """Return whether a log contains answers of the outside world.

    Raises:
        PeerViolation: the log cannot be read.
    """
    if _TAGS.isdisjoint(log):
        return False
    codec, place = DeterminantCodec(), 0
    while place < len(log):
        if log[place] in _TAGS:
            return True
        _, place = codec.decode(log, place)
    return False


def record_answers(
    recording: Recording, job: Path, first: int, last: int, tasks: Sequence[str], scratch: Path
) -> tuple[Path | None, int]:
    """Write the answers of some epochs to a file in `scratch`; return the file and their number.

    Args:
        first: the kept checkpoint at which the epochs begin.
        tasks: the tasks that have been answered; without any, there is no file.

    Raises:
        Unavailable: the tasks cannot be replayed.
    """
    if not tasks:
        return None, 0
    path, room = scratch / FILE, scratch / "replay"
    room.mkdir()

    def replayed() -> bytes:
        replay = Replay(recording, job, first, room, tasks)
        return str(create(path, _answers(replay, last))).encode()

    try:
        return path, int(in_fork(replayed, WITHIN_S))
    except Unavailable as problem:
        raise Unavailable(f"the recorded answers cannot be read: {problem}") from None


def _answers(replay: Replay, last: int) -> Iterator[tuple[Question, bytes]]:
    """Perform all epochs, and yield each request with its answer."""
    answered: list[tuple[Question, bytes]] = []

    def answers(ask: Callable[[], bytes], answer: bytes) -> None:
        if isinstance(ask, Asking):
            answered.append((question(ask), answer))

    for each in replay.cone.replays.values():
        each.answered = answers
    stages = {task: _asking(chain) for task, chain in replay.chains.items()}
    while replay.epoch <= last:
        replay.begin_epoch()
        while (following := replay.next()) is not None:
            task, event = following
            if type(event) is Answer and (stage := stages[task].get(event.operator)) is not None:
                record, key = stage.request_of(event.number)
                answered.append((question_of_record(stage.name, key, record), event.body))
            replay.perform()
            yield from answered
            answered.clear()


def _asking(chain: OperatorChain) -> dict[int, AskStage]:
    return {stage.ordinal: stage for stage in chain.stages if isinstance(stage, AskStage)}
