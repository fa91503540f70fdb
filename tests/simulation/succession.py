"""Supervisors that may be lost with their hosts, on virtual time: candidates, terms, and the journal in the store.

The rules are those that ship (`standby.leadership`); each of their requests takes a while, may fail, and may lose its
answer.  Only the marks of candidates bypass the store.  The clocks of supervisors run `SPEED` times as fast as
those of the job, whose life here is short.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from causal.errors import CausalError, Fenced, Unavailable
from causal.records.values import encode
from standby.leadership import campaign as campaigns
from standby.leadership.campaign import Pause
from standby.leadership.candidacy import BEAT_NS, Candidacy
from standby.leadership.candidates import FRESH_NS
from standby.leadership.hearing import Hearing
from standby.leadership.ledger import Ledger
from standby.leadership.term_journal import Inherited, Remove, Request, Sighting, brought
from standby.leadership.terms import DEAF, ENDED, JOURNAL, RESIGNED, Entry, Term, entry_name, necessary, number_of
from standby.storage.store_journal import AGAIN_S, answered
from standby.supervision.effects import Record
from tests.simulation.clockwork import MS, SECOND
from tests.simulation.host import Supervisor
from tests.simulation.peers import Violated

if TYPE_CHECKING:
    from tests.simulation.machines import Machine
    from tests.simulation.world import Simulation

SPEED = 8
CANDIDATES_NS = 20 * SECOND
"""The time after which users start candidates also where the job is not resumed yet."""

NAMES = ("supervisor", "supervisor-b", "supervisor-c")

Procedure = Generator[Request | Pause, Any, Any]


class Seat:
    """One supervisor over all its processes, each of which is a candidate first.

    Attributes:
        life: counts its processes; living: whether one lives.
        supervisor: its process as the leader, which may have been deposed without knowing it.
        asleep_until_ns: its process is suspended until then: what reaches it waits.
        mark: whether it heard hosts as a candidate, and when it said so; it outlives its process.
    """

    def __init__(self, world: Simulation, name: str) -> None:
        self.world = world
        self.name = name
        self.life = 0
        self.living = False
        self.supervisor: Supervisor | None = None
        self.asleep_until_ns = 0
        self.mark = (False, 0)
        self._heard = 0
        self._hearing = Hearing(leads=False)
        self._base: tuple[int, int] | None = None
        self._brought: list[Record] = []
        self._added: list[Record] = []
        """Decisions of the resumption beside those that it brings."""

    # -- its processes -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a candidate, unless a process lives."""
        if not self.living and self.world.ended is None:
            self._begin()
            self._stand(None)

    def resume(self, then: Callable[[], None], ended: bool) -> None:
        """Resume the job, and call `then` once its decisions are here.

        Args:
            ended: all of its processes have; otherwise hosts and their tasks work on, and are taken over.
        """
        if self.living:
            then()
            return
        self._begin()

        def taken(answer: tuple[Inherited, Sighting] | None) -> None:
            if answer is not None:
                decided, seen = answer
                self._base = decided.term, decided.place
                resumed = ended or not decided.interrupted
                self._added = [{"kind": "resumed", "at_ns": self.world.clock.now_ns}] if resumed else []
                self._brought = [*decided.records, *self._added]
            self._stand(None if answer is None else (seen.term.number, seen.place))
            then()

        def again(problem: CausalError) -> None:
            self.die(None)
            self.world.clock.after(200 * MS, lambda: self.resume(then, ended))

        self.drive(brought(), taken, again)

    def _begin(self) -> None:
        self.life, self.living, self.asleep_until_ns, self._base = self.life + 1, True, 0, None
        self._heard, self._hearing = 0, Hearing(leads=False)
        self.world.add_to_story(self.name, "start")

    def die(self, again_ns: int | None) -> None:
        """End its process immediately, and another one is started so much later."""
        if not self.living:
            return
        self.living, self.life = False, self.life + 1
        if self.supervisor is not None:
            self.supervisor.living = False
        self.supervisor = None
        self.world.add_to_story(self.name, "death")
        if again_ns is not None:
            self.world.clock.after(again_ns, self.start)

    def _soon(self) -> int:
        return self.world.rng.randint(30, 200) * MS

    # -- its way to leadership -------------------------------------------------------------------------

    def _stand(self, resumes: tuple[int, int] | None) -> None:
        candidacy = Candidacy(self.name, self.name == NAMES[0], resumes)
        campaign = campaigns.campaign(candidacy, self._described, lambda problem: None, self._hears)
        self.drive(campaign, self._won, lambda problem: self.die(self._soon()))

    def hear(self, machine: Machine) -> None:
        """A message of a host has reached a candidate, or none where no process listens."""
        self._heard += self.living and not machine.revoked

    def _hears(self) -> bool:
        """Look what it hears as a candidate, and show it in its mark."""
        self._hearing.look(self._heard, self.world.clock.now_ns * SPEED)
        self.mark = self._hearing.hears, self.world.clock.now_ns
        return self._hearing.hears

    def _described(self, number: int, seen: Sighting | None) -> Term:
        return Term(number, self.name, self.name, f"tcp://{self.name}:7700", "{}", "{}")

    def _won(self, ledger: Ledger | None) -> None:
        if ledger is None:
            self.world.terms.concluded()
            return
        added: list[Record] = []
        if self._base == (ledger.inherited.term, ledger.inherited.place):
            ledger.replace(self._brought, "{}", "{}")
            added = self._added
        self.world.terms.intends(ledger, added)

        def leads(superfluous: object) -> None:
            self.drive(ledger.sweep(), lambda nothing: self._lead(ledger), failed)

        def failed(problem: CausalError) -> None:
            self.die(self._soon())

        self.drive(ledger.append((), self.world.clock.now_ns), leads, failed)

    def _lead(self, ledger: Ledger) -> None:
        self._base = None
        self.supervisor = self.world.supervisor = Supervisor(self.world, self, StoredDecisions(self, ledger))
        self.supervisor.lead(ledger.records)

    def deposed(self, problem: CausalError) -> None:
        """A later term has sealed its journal."""
        self.world.note(self.name, str(problem))
        self.die(self._soon())

    # -- what it asks of the store -------------------------------------------------------------------------

    def drive(self, procedure: Procedure, done: Callable[[Any], None], failed: Callable[[CausalError], None]) -> None:
        """Perform a procedure, request by request, as long as this process lives."""
        self._continue(procedure, lambda: next(procedure), done, failed)

    def _continue(
        self,
        procedure: Procedure,
        resume: Callable[[], Request | Pause],
        done: Callable[[Any], None],
        failed: Callable[[CausalError], None],
    ) -> None:
        world, life = self.world, self.life
        try:
            request = resume()
        except StopIteration as end:
            done(end.value)
            return
        except (Fenced, Unavailable) as problem:
            failed(problem)
            return

        def awake(then: Callable[[], Request | Pause]) -> None:
            if self.life != life or world.ended is not None:
                return
            if world.clock.now_ns < self.asleep_until_ns:
                world.clock.at(self.asleep_until_ns, lambda: awake(then))
            else:
                self._continue(procedure, then, done, failed)

        def attempt() -> None:
            if self.life != life and world.rng.random() < 0.5:
                return  # death came before the request, not after
            try:
                answer = answered(request, world.shared.reached(self.name))
            except Unavailable as problem:
                awake(lambda problem=problem: procedure.throw(problem))  # type: ignore[misc]
            else:
                awake(lambda: procedure.send(answer))

        if isinstance(request, Pause):
            world.clock.after(
                request.span_ns // SPEED, lambda: awake(lambda: procedure.send(world.clock.now_ns * SPEED))
            )
        else:
            world.clock.after(world.shared.takes_ns(), attempt)


class StoredDecisions:
    """The decisions of one leader in the store (`standby.storage.store_journal.StoreJournal`).

    Attributes:
        written: the number of decisions that are.
    """

    def __init__(self, seat: Seat, ledger: Ledger) -> None:
        self.term = ledger.term
        self.written = 0
        self._seat = seat
        self._ledger = ledger
        self._waiting: list[Record] = []
        self._closing = ""
        self._writing = False
        self._beat_due_ns = 0
        self._hearing = Hearing(leads=True)
        self._wait()

    def append(self, records: Sequence[Record]) -> None:
        """Take decisions, which are written in their order."""
        self._waiting += records
        if records:
            self._write()

    def resign(self, closing: str = RESIGNED) -> None:
        """Write the last entry of a leader that leaves the job to another one."""
        self._closing = closing
        self._write()

    def _leaves(self) -> bool:
        """Return whether its leader hears no host, and a candidate does."""
        supervisor, world = self._seat.supervisor, self._seat.world
        if supervisor is None:
            return False
        self._hearing.look(supervisor.heard, world.clock.now_ns * SPEED)
        timeout_ns = world.config.host_timeout_ms * MS * SPEED
        return self._hearing.leaves(timeout_ns, world.terms.hears(self._seat))

    def _wait(self) -> None:
        clock, seat, life = self._seat.world.clock, self._seat, self._seat.life
        due_ns = self._beat_due_ns = clock.now_ns + BEAT_NS // SPEED

        def beat() -> None:
            if seat.life != life or due_ns != self._beat_due_ns:
                return
            if clock.now_ns < seat.asleep_until_ns:
                clock.at(seat.asleep_until_ns, beat)
            elif self._leaves():
                self.resign(DEAF)
            else:
                self._write()

        clock.at(due_ns, beat)

    def _write(self) -> None:
        if self._writing or self._seat.world.ended is not None:
            return
        self._writing = True
        records, self._waiting = self._waiting, []
        closing = ENDED if any(record["kind"] == "ended" for record in records) else self._closing
        self._seat.world.terms.intends(self._ledger, records)
        self._try(records, self._seat.world.clock.now_ns, closing)

    def _try(self, records: list[Record], at_ns: int, closing: str) -> None:
        seat, life = self._seat, self._seat.life

        def again() -> None:
            if seat.life == life:
                self._try(records, at_ns, closing)

        def failed(problem: CausalError) -> None:
            if isinstance(problem, Fenced):
                seat.deposed(problem)
            else:
                seat.world.clock.after(int(AGAIN_S * SECOND) // SPEED, again)

        def done(superfluous: tuple[str, ...]) -> None:
            self._writing = False
            self.written += len(records)
            if closing in (RESIGNED, DEAF):
                seat.die(SECOND)
                return
            if superfluous:
                seat.drive(_removal(superfluous), lambda nothing: None, lambda problem: None)
            if seat.supervisor is not None:
                seat.supervisor.release()
            if seat.life != life or closing:
                return
            if self._waiting or self._closing:
                self._write()
            else:
                self._wait()

        seat.drive(self._ledger.append(records, at_ns, closing), done, failed)


def _removal(names: tuple[str, ...]) -> Procedure:
    yield Remove(names)


class Terms:
    """All supervisors of one job, and the account of their decisions, one line over all terms.

    Attributes:
        begun: the terms that have begun.
    """

    def __init__(self, world: Simulation, successors: int) -> None:
        self._world = world
        self.seats = {name: Seat(world, name) for name in NAMES[: 1 + successors]} if successors else {}
        self.begun: list[int] = []
        self._intents: dict[str, tuple[Record, ...]] = {}
        self._entries: dict[str, bytes] = {}
        """Entries that were created, also those that were removed since."""

    def start(self) -> None:
        """Start the job, and candidates for it."""
        for seat in self.seats.values():
            if seat.name == NAMES[0]:
                seat.start()
            else:
                self._world.clock.after(self._world.rng.randint(0, 500) * MS, seat.start)

    def resume(self, ended: bool = True) -> None:
        """Resume the job, of which every process has ended, or only every supervisor; candidates begin after that."""
        first, *others = self.seats.values()
        waiting = list(others)

        def resumed() -> None:
            while waiting:
                self._world.clock.after(self._world.rng.randint(0, 1000) * MS, waiting.pop(0).start)

        first.resume(resumed, ended)
        self._world.clock.after(CANDIDATES_NS, resumed)  # the one that resumes it may have died before

    def aimed_at(self, who: int) -> Seat:
        """Return the supervisor that a fault is about: mostly the leader of the newest term."""
        seats = list(self.seats.values())
        leads = [seat for seat in seats if seat.supervisor is not None and seat.supervisor is self._world.supervisor]
        return leads[0] if leads and who % 4 < 3 else seats[who // 4 % len(seats)]

    def hears(self, leader: Seat) -> bool:
        """Return whether the newest mark of a candidate for the place of that leader says that it hears hosts."""
        now_ns = self._world.clock.now_ns
        others = [seat for seat in self.seats.values() if seat is not leader and seat.supervisor is None]
        marks = [seat.mark for seat in others if now_ns - seat.mark[1] < FRESH_NS // SPEED]
        return any(hears for hears, _ in marks)

    def concluded(self) -> None:
        """A candidate has seen that the job has ended."""
        ends = [record for record in self._world.decisions if record["kind"] == "ended"]
        self._world.ended = self._world.ended or (ends[-1]["status"], ends[-1]["reason"])

    # -- the account ---------------------------------------------------------------------------------

    def intends(self, ledger: Ledger, records: Sequence[Record]) -> None:
        """A leader is about to write these decisions as the next entry."""
        self._intents[entry_name(ledger.term, ledger.place)] = tuple(records)

    def created(self, name: str, data: bytes) -> None:
        """An object was created: with an entry of a journal its decisions are those of the job."""
        if not name.startswith(f"{JOURNAL}/"):
            return
        entry = Entry.read(name, data)
        if entry.sealed_by:
            return
        before = self._entries.get(name)
        if before is not None:  # its leader has missed the answer, and a successor has read and removed it meanwhile
            if before != data:
                raise Violated(f"terms: {name} is created a second time, with other decisions")
            return
        self._entries[name] = data
        records, term = self._intents[name], number_of(name.rpartition("/")[0])
        if number_of(name) == 0:
            self._begins(term, entry, records)
        elif term != self.begun[-1]:
            raise Violated(f"terms: term {term} decides, and term {self.begun[-1]} has begun")
        for record in records:
            self._world.decided(record)

    def _begins(self, term: int, entry: Entry, records: tuple[Record, ...]) -> None:
        if self.begun and term <= self.begun[-1]:
            raise Violated(f"terms: term {term} begins, and term {self.begun[-1]} has begun")
        self.begun.append(term)
        wanted = [_encoded(record) for record in necessary([*self._world.decisions, *records])]
        present = [_encoded(record) for record in entry.records]
        if wanted != present:
            lacking = [record["kind"] for record in self._world.decisions if _encoded(record) not in present]
            raise Violated(f"terms: term {term} begins without decisions of those before it: {', '.join(lacking[:5])}")


def _encoded(record: Mapping[str, Any]) -> bytes:
    return encode(dict(record))
