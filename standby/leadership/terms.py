"""Terms and journal entries as objects of the shared store: their names and contents. Pure.

A term is one supervisor's time as the leader of a job; the supervisor that creates the term's object is elected. The
journal of a term is a sequence of entries that the leader creates one after another. If another supervisor creates an
entry in place of the leader, this entry seals the journal, and the leader can make no more decisions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from causal.errors import CorruptData, PeerViolation
from causal.records.values import decode, encode
from causal.sealed import seal_bytes, unseal_bytes
from standby.supervision.effects import Record

TERMS, JOURNAL, CANDIDATES = "terms", "journal", "candidates"
"""The folders in a job's part of the shared store."""

ENDED, STOPPED, RESIGNED, DEAF = "ended", "stopped", "resigned", "deaf"
"""The reasons why a leader closes its journal: the job has ended; the job was stopped and may be resumed; another
supervisor should lead the job; the leader hears no host, but a candidate does."""

CHECKPOINTS_KEPT = 2
"""The number of `checkpoint` decisions that are kept: older ones list removed files, and would grow with the job's age
(92 bytes per task each)."""


@dataclass(frozen=True, slots=True)
class Term:
    """One supervisor's time as the leader.

    Attributes:
        holder: the mark of the leader's directory; the next process in that directory is the same supervisor.
        name: the name of the leader's key; empty if keys are not used.
        listen: the address at which agents join the leader.
        job: the settings of the job, as in `job.json`.
        graph: the supervisor's description of the pipeline, as in `topology.json`.
    """

    number: int
    holder: str
    name: str
    listen: str
    job: str
    graph: str

    def data(self) -> bytes:
        """Return the content of the term's object."""
        return _packed(term_name(self.number), asdict(self))

    @classmethod
    def read(cls, name: str, data: bytes) -> Term:
        """Decode the bytes that `data` returned.

        Raises:
            CorruptData: the bytes are damaged.
        """
        return cls(**_unpacked(name, data, cls.__slots__))

    @property
    def leader(self) -> str:
        """The leader, as messages name it."""
        return f"{self.name or 'the supervisor'} at {self.listen} (term {self.number})"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a term's journal.

    Attributes:
        records: the decisions, in order; empty if the entry only shows that the leader is alive.
        at_ns: the job's time when the entry was written.
        whole: whether the records are all decisions of the job up to this entry that are still necessary.
        job, graph: the settings and the graph to which these decisions apply, as in a term; empty if the entry is not
            whole.  A change to them is a decision, so a supervisor that inherits decisions reads them from here and not
            from a term.
        sealed_by: the term whose supervisor created the entry in place of the leader; 0 for an entry of the leader
            itself.
        closing: why this is the leader's last entry; empty for an ordinary entry.
    """

    records: tuple[Record, ...] = ()
    at_ns: int = 0
    whole: bool = False
    sealed_by: int = 0
    closing: str = ""
    job: str = ""
    graph: str = ""

    def data(self, name: str) -> bytes:
        """Return the content of the entry's object, which has this name."""
        return _packed(name, {**asdict(self), "records": [dict(record) for record in self.records]})

    @classmethod
    def read(cls, name: str, data: bytes) -> Entry:
        """Decode the bytes that `data` returned.

        Raises:
            CorruptData: the bytes are damaged.
        """
        content = _unpacked(name, data, cls.__slots__)
        return cls(**{**content, "records": tuple(content["records"])})


def term_name(number: int) -> str:
    """Return the name of a term's object."""
    return f"{TERMS}/{number:08d}"


def journal_folder(term: int) -> str:
    """Return the folder of a term's entries."""
    return f"{JOURNAL}/{term:08d}"


def entry_name(term: int, place: int) -> str:
    """Return the name of the entry at this place in a term's journal."""
    return f"{journal_folder(term)}/{place:010d}"


def number_of(name: str) -> int:
    """Return the number at the end of a name."""
    return int(name.rpartition("/")[2])


def necessary(records: list[Record]) -> list[Record]:
    """Return the records except those that later records make unnecessary."""
    checkpoints = [place for place, record in enumerate(records) if record["kind"] == "checkpoint"]
    over = frozenset(checkpoints[:-CHECKPOINTS_KEPT])
    return [record for place, record in enumerate(records) if place not in over]


def _packed(name: str, content: dict[str, Any]) -> bytes:
    return seal_bytes(name.encode(), encode(content))


def _unpacked(name: str, data: bytes, fields: tuple[str, ...]) -> dict[str, Any]:
    try:
        content = decode(unseal_bytes(name.encode(), data))
        if type(content) is not dict or content.keys() != frozenset(fields):
            raise ValueError("it has missing or unexpected fields")
        return content
    except (PeerViolation, ValueError, TypeError) as problem:
        raise CorruptData(f"{name} in the shared store is damaged ({problem}); restore it from a copy") from None
