"""The body of the loop around one task: it feeds events, performs effects in order, and requests the next turn.

Every external effect of a running task is performed from here, in the order determined by the core (D4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from causal.effects import Effect
from causal.events import Event, FrameReceived, Started, Turn
from causal.network.transport import Transport
from causal.ports import SinkStore, StagingStore
from causal.process.clock import monotonic_ns
from causal.shell.outage import StoreCalls
from causal.shell.request_pool import RequestPool
from causal.storage.disk import Disk
from causal.task.performer import Peers, Performer, Reader
from causal.task.task import TaskProtocol

TURNS_PER_POLL = 8
WAIT_MS_MAX = 1000
REST_NS_MIN = 20_000
"""The shortest sleep that is measured; a shorter one counts as work, because finding its reason costs about as much."""


class TaskDriver:
    """Runs one `TaskProtocol` on real sockets, disk, stores and readers.

    Args:
        report: called with (kind, facts) for the control plane: `phase`, `snapshot`, `finding`, and the reports of
            `StoreCalls`.
        patience_s: the maximum time that a store may be unavailable.
        turning: called with the current time at the beginning of each turn.
        urgent: returns whether a command of the supervisor has arrived, for which the round ends after the current
            turn: a neighbour may be recovering.
        answers: the frames from downstream that arrived before the task started.

    While a store is unavailable, the task performs no turns, and effects wait in order after the one that failed. The
    task still answers its neighbours, which may be recovering.
    """

    def __init__(
        self,
        task: TaskProtocol,
        run: str,
        transport: Transport,
        disk: Disk,
        stores: Mapping[int, SinkStore],
        readers: Mapping[int, Reader],
        report: Callable[[str, dict[str, Any]], None],
        asking: RequestPool | None = None,
        patience_s: float = 60.0,
        turning: Callable[[int], None] = lambda now_ns: None,
        urgent: Callable[[], bool] = lambda: False,
        answers: Sequence[list[bytes]] = (),
    ) -> None:
        self.task = task
        self._transport = transport
        self._disk = disk
        self._stores = stores
        self._staging = [store for store in stores.values() if isinstance(store, StagingStore)]
        self._readers = readers
        # `isinstance` does not work here: since Python 3.12, it ignores attributes that a reader delegates with
        # `__getattr__`.
        counting = [getattr(reader, "counters", None) for reader in readers.values()]
        self._counting: list[Callable[[], dict[str, int | float]]] = [each for each in counting if callable(each)]
        completing = {channel: getattr(reader, "complete", None) for channel, reader in readers.items()}
        self._completing: dict[int, Callable[[int], bool]] = {c: each for c, each in completing.items() if each}
        """Channel → a function that returns whether the recorded input of its partition is complete at a position."""
        self._input_complete = 0
        self._report = report
        self._asking = RequestPool({}) if asking is None else asking
        self._abandoned = ""
        self._store_calls = StoreCalls(task.name, patience_s, report)
        self._turning = turning
        self._urgent = urgent
        self._early_answers = answers
        peers = Peers(transport, disk, stores, readers, self._asking, self._store_calls, report, monotonic_ns)
        self._performer = Performer(task, run, peers, self._handled)
        self._turn_ns = 0
        self._began_ns = monotonic_ns()
        self._blocked_ns = self._idle_ns = 0

    def start(self) -> None:
        self.feed(Started())
        answers, self._early_answers = self._early_answers, ()
        for parts in answers:
            self.feed(FrameReceived(b"", parts))

    def feed(self, event: Event) -> None:
        """Pass one event to the task, perform its effects, and pass the answers on to the task."""
        self._performer.feed(event)

    def _handled(self, event: Event) -> list[Effect]:
        return self.task.handle(event, monotonic_ns())

    def work(self, ready: dict[Any, int], rested_ns: int = 0) -> None:
        """Perform one round: handle arrived frames, answers from the disk and due reads, and then perform some turns.

        Args:
            rested_ns: the time for which the loop slept before this round.
        """
        self._note_rest(rested_ns)
        for link, parts in self._transport.receive(ready):
            self.feed(FrameReceived(link, parts))
        if self._disk.wake in ready:
            for answer in self._disk.answers():
                self.feed(answer)
        if self._asking.wake in ready or self._asking_is_due():
            for answered in self._asking.answers():
                self.feed(answered)
            self._report_abandoned()
        if self._performer.pending:
            self._performer.read_again(monotonic_ns())
        if self._performer.waiting and not self._tried_again():
            return
        for _ in range(TURNS_PER_POLL):
            began_ns = monotonic_ns()
            self._turning(began_ns)
            self.feed(Turn(self._turn_ns))
            self._turn_ns = monotonic_ns() - began_ns
            if self.task.idle or self.task.encoding or self._urgent():
                return

    def wait_ms(self) -> int:
        """Return the number of milliseconds for which the loop may sleep."""
        if self._performer.waiting:
            return ms_until(self._store_calls.again_ns, monotonic_ns())
        if not self.task.idle:
            return 0
        now_ns = monotonic_ns()
        due = [pending.again_at_ns for pending in self._performer.pending.values()]
        due += [at for at in (self.task.next_deadline_ns(now_ns), self._asking.next_ns()) if at is not None]
        return ms_until(min(due), now_ns) if due else WAIT_MS_MAX

    def _report_abandoned(self) -> None:
        """Log once when all permitted calls have been abandoned, and once when this is no longer the case."""
        stuck = self._asking.abandoned
        if stuck != self._abandoned:
            self._abandoned = stuck
            line = stuck or "calls that timed out have returned"
            self._report("waiting", {"line": f"{self.task.name}: {line}"})

    def _asking_is_due(self) -> bool:
        next_ns = self._asking.next_ns()
        return next_ns is not None and next_ns <= monotonic_ns()

    def counters(self) -> dict[str, Any]:
        """Return the task's counters, and the counters that only the shell can determine."""
        return {
            **self.task.counters(),
            "latency_ms_buckets": dict(self._performer.latencies.buckets_ms),
            "latency_ms_max": self._performer.latencies.max_ms,
            "latency_ms_sum": round(self._performer.latencies.sum_ms, 3),
            "checkpoint_ms": self._performer.checkpoint_ms,
            "snapshot_bytes": self._disk.snapshot_bytes,
            "failed_merges": self._disk.failed_merges,
            **self._shares(),
            "refused_rows": sum(getattr(store, "refused", 0) for store in self._stores.values()),
            "undeliverable_frames": self._transport.undeliverable,
            **self._staged_counters(),
            **self._source_counters(),
            **self._asking.counters(),
        }

    def _note_rest(self, rested_ns: int) -> None:
        """Count the loop's sleep as blocked if the task was waiting for a neighbour or store, and otherwise as idle."""
        if rested_ns < REST_NS_MIN:
            return
        if self._performer.waiting or self.task.full:
            self._blocked_ns += rested_ns
        else:
            self._idle_ns += rested_ns

    def _shares(self) -> dict[str, float]:
        """Return how many seconds the task has spent busy, blocked and idle since it began."""
        busy_ns = max(0, monotonic_ns() - self._began_ns - self._blocked_ns - self._idle_ns)
        seconds = {"busy_s": busy_ns, "blocked_s": self._blocked_ns, "idle_s": self._idle_ns}
        return {name: round(spent_ns / 1e9, 3) for name, spent_ns in seconds.items()}

    def _staged_counters(self) -> dict[str, int]:
        """Return the number of rows that wait for their checkpoint, if any store stages rows."""
        staged = [store.staged() for store in self._staging]
        return {"staged_rows": sum(r for r, _ in staged), "staged_bytes": sum(b for _, b in staged)} if staged else {}

    def _source_counters(self) -> dict[str, int | float]:
        """Return the counters that readers keep for their sources in addition to record counts.

        Numbers are summed over the readers; of times, which are floats, the longest counts.
        """
        sums: dict[str, int | float] = {}
        for counters in self._counting:
            for name, value in counters().items():
                known = sums.get(name, 0)
                sums[name] = max(known, value) if isinstance(value, float) else known + value
        return sums | self._input_counters()

    def _input_counters(self) -> dict[str, int]:
        """Return the total input size and the amount read, if all readers of the task know them (`measured`)."""
        if not self._readers:
            return {}
        known: list[tuple[int, int]] = []
        for partition in self.task.channels.partitions:
            measure = getattr(self._readers[partition.id], "measured", None)
            measured = measure(partition.delivered) if callable(measure) else None
            known += [] if measured is None else [measured]
        if len(known) < len(self._readers):
            return {}
        return {"input_read": sum(read for read, _ in known), "input_size": sum(size for _, size in known)}

    @property
    def input_complete(self) -> int:
        """The first barrier before which all input that readers call complete is delivered; 0 until then.

        Partitions that have ended count as complete, but not if all have: then the task ends.
        """
        if self._completing and not self._input_complete:
            partitions = self.task.channels.partitions
            open = [each for each in partitions if not each.ended]
            if open and all(self._completing[each.id](each.delivered) for each in open):
                self._input_complete = self.task.cursor.epoch + 1
        return self._input_complete

    @property
    def reported_state(self) -> str:
        """The task's state for a heartbeat; it is "ended" only after its store has all rows and this was reported."""
        return self._performer.reported_state

    @property
    def first_record_ns(self) -> int:
        """The time at which the task read its first record, or 0 if it has not read any."""
        return self._performer.first_record_ns

    @property
    def last_output_ns(self) -> int:
        """The time at which rows of the task last became visible, or 0 if none have."""
        return self._performer.last_output_ns

    @property
    def waiting(self) -> tuple[int, str] | None:
        """The time since which the task has been waiting for a store, and the reason; None if it is not waiting."""
        return self._store_calls.waiting

    @property
    def store_call_ns(self) -> int:
        """The time at which the current store call began, or 0 outside a call; another thread may read it."""
        return self._store_calls.call_ns

    def overdue(self) -> str | None:
        """Return why the process must end if a store does not answer at all, or None; another thread may call this."""
        return self._store_calls.overdue()

    def close(self, ends: bool = True) -> None:
        """Close everything that the task has open.

        Args:
            ends: whether the process ends; the log of the epoch that the task has not finished is then kept.
        """
        log = self.task.unfinished_log() if ends else None
        if log is not None:
            self._disk.ask(log)
        for store in self._stores.values():
            store.close()
        for reader in self._readers.values():
            reader.close()
        self._disk.close()
        self._asking.close()

    def _tried_again(self) -> bool:
        """Retry the effects that wait for a store if a retry is due; return whether none are waiting any more."""
        return monotonic_ns() >= self._store_calls.again_ns and self._performer.retry()


def ms_until(at_ns: int, now_ns: int) -> int:
    """Return the time to sleep in milliseconds, rounded up because nothing would be due after an early wake-up."""
    return max(0, min(WAIT_MS_MAX, -((now_ns - at_ns) // 1_000_000)))
