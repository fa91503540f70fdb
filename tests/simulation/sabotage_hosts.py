"""Ways to break what several hosts promise, one rule each (see `sabotage`); looked for in scenarios with hosts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as replaced

from causal import commands
from causal.commands import HighestTerm
from causal.errors import Fenced, Unavailable
from causal.storage.stored_logs import StoredLogs
from operators.runtime import membership
from operators.runtime.membership import Membership
from standby.blueprint import Constraint
from standby.leadership import campaign, ledger, term_journal, terms
from standby.leadership.hearing import Hearing
from standby.network.control import Inbox
from standby.storage import manifests
from standby.supervision.hosts import Hosts
from standby.supervision.placement import Placement
from standby.supervision.supervision import Supervision
from tests.simulation.breaking import Patches, found_by
from tests.simulation.host_agent import HostAgent
from tests.simulation.scenario import draw_hosts
from tests.simulation.shared_store import SimulatedUploads
from tests.simulation.succession import StoredDecisions


@found_by(85, draw_hosts)
def _an_older_host_works_on() -> Patches:
    """An agent that hears of a higher incarnation than its own lets its processes live."""
    return {(HostAgent, "end_older"): lambda self: None}


@found_by(9, draw_hosts)
def _beats_of_an_older_host_count() -> Patches:
    """The supervisor does not look at which incarnation of a host beats."""
    return {(Hosts, "accepts"): lambda self, name, incarnation: self.get(name) is not None}


@found_by(165, draw_hosts)
def _silence_is_no_sign() -> Patches:
    """A host of which nothing is heard is not lost."""
    return {(Hosts, "silent"): lambda self, now_ns, listening_since_ns: []}


@found_by(3, draw_hosts)
def _standbys_beside_their_tasks() -> Patches:
    """A standby may be on the host of its task."""
    return {(Placement, "_holder"): lambda self, purpose: None}


@found_by(12, draw_hosts)
def _pins_are_forgotten() -> Patches:
    """A task may be on any host."""
    return {(Constraint, "admits"): lambda self, host, labels: True}


@found_by(2, draw_hosts)
def _a_drain_is_forgotten() -> Patches:
    """A host that is to be emptied gets processes."""
    apply = Hosts.apply
    return {(Hosts, "apply"): lambda self, record: None if record["kind"] == "host_draining" else apply(self, record)}


@found_by(1, draw_hosts)
def _acknowledged_before_the_upload() -> Patches:
    """A snapshot counts as soon as the disk of its host has it."""
    put = SimulatedUploads.put

    def early(self: SimulatedUploads, name: str, parts: Any, done: Callable[[], None]) -> None:
        done()
        put(self, name, parts, lambda: None)

    return {(SimulatedUploads, "put"): early}


@found_by(32, draw_hosts)
def _a_store_that_does_not_answer_has_stored() -> Patches:
    """An upload that fails is not tried again: a manifest may name what only one disk has."""
    store = SimulatedUploads.store

    def once(self: SimulatedUploads, *file: Any) -> None:
        with suppress(Unavailable):
            store(self, *file)

    return {(SimulatedUploads, "store"): once}


@found_by(39, draw_hosts)
def _determinants_count_as_soon_as_they_are_sent() -> Patches:
    """Determinants that a store has not acknowledged are said to be stable."""
    append = StoredLogs.append

    def hopeful(self: StoredLogs, logs: Any) -> Any:
        with suppress(Unavailable):
            return append(self, logs)
        return [(delta.task, delta.epoch, delta.offset + len(delta.bytes)) for delta in logs]

    return {(StoredLogs, "append"): hopeful}


@found_by(19, draw_hosts)
def _swept_although_named() -> Patches:
    """Snapshots that the last manifests name are removed from the store."""
    unnecessary = manifests.unnecessary
    return {
        (manifests, "unnecessary"): lambda names, order: unnecessary(names, replace(order, keep=frozenset())),
    }


@found_by(0, draw_hosts)
def _promoted_as_it_was() -> Patches:
    """A standby that takes over has the incarnation of the one that it replaces."""
    promote = Membership._promote

    def lower(self: Membership, command: commands.Promote, now_ns: int) -> Any:
        return promote(self, replaced(command, incarnation=max(1, command.incarnation - 1)), now_ns)

    return {(membership, "_COMMANDS"): {**membership._COMMANDS, commands.Promote: lower}}


@found_by(26, draw_hosts)
def _any_host_speaks_for_any_process() -> Patches:
    """A message about a process counts whichever host it comes from."""
    receive_from = Inbox.receive_from

    def believing(self: Inbox, host: str, slot: str, data: bytes, placed_on: str | None) -> Any:
        return receive_from(self, host, slot, data, host)

    return {(Inbox, "receive_from"): believing}


@found_by(26, draw_hosts)
def _agents_are_believed_about_other_hosts() -> Patches:
    """An agent may report the end of a process that was placed on another host."""
    return {(Supervision, "_of_host"): lambda self, name, host: self.assignments.slots.get(name)}


@found_by(40, draw_hosts)
def _older_terms_are_obeyed() -> Patches:
    """Agents and workers do not look at the term of a message."""

    def admits(self: HighestTerm, message: Any) -> bool:
        self.term = max(self.term, message.get(commands.TERM, 0))
        return True

    return {(HighestTerm, "admits"): admits}


@found_by(6, draw_hosts)
def _a_successor_misses_an_entry() -> Patches:
    """A successor reads the journal without its last entry."""
    read_back = term_journal.read_back
    return {(term_journal, "read_back"): lambda term, last: read_back(term, max(0, last - 1))}


@found_by(13, draw_hosts)
def _journals_are_not_sealed() -> Patches:
    """A successor reads the journal, and its leader still writes."""

    def unsealed(number: int) -> Any:
        for earlier in range(number - 1, 0, -1):
            entries = yield term_journal.Names(terms.journal_folder(earlier))
            if entries:
                return (yield from term_journal.read_back(earlier, terms.number_of(entries[-1])))
        return term_journal.Inherited()

    return {(campaign, "inherited"): unsealed}


@found_by(3, draw_hosts)
def _acted_upon_before_it_is_written() -> Patches:
    """A leader acts upon decisions that wait to be written."""
    append = StoredDecisions.append

    def hasty(self: StoredDecisions, records: Any) -> None:
        self.written += len(records)
        append(self, records)

    return {(StoredDecisions, "append"): hasty}


@found_by(22, draw_hosts)
def _a_seal_is_no_hindrance() -> Patches:
    """A leader that finds the seal of a successor takes its own decisions for written."""
    appended = term_journal.appended

    def deaf(term: int, place: int, data: bytes) -> Any:
        with suppress(Fenced):
            yield from appended(term, place, data)

    return {(ledger, "appended"): deaf}


@found_by(12, draw_hosts)
def _a_deaf_leader_stays() -> Patches:
    """A leader that hears no host keeps its term as long as it reaches the store."""
    return {(Hearing, "leaves"): lambda self, timeout_ns, candidate_hears: False}
