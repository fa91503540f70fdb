"""Terms and journal entries as objects of the shared store: their names and contents. Pure.

A term is one supervisor's time as the leader of a job; the one that creates its object is elected. The journal of a
term is a sequence of entries, which its leader creates one after the other. An entry that another supervisor creates
instead of the leader seals the journal: the leader can decide nothing any more.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from causal.errors import CorruptData, PeerViolation
from causal.records.values import decode, encode
from causal.sealed import seal_bytes, unseal_bytes
from standby.supervision.effects import Record

TERMS, JOURNAL, CANDIDATES = "terms", "journal", "candidates"
"""The folders of a job's place in the store."""

ENDED, STOPPED, RESIGNED, DEAF = "ended", "stopped", "resigned", "deaf"
"""The reasons for which a leader closes its journal: the job has ended; it was stopped, and may be resumed; another
supervisor is to lead it; it hears no host, and a candidate does."""

CHECKPOINTS_KEPT = 2
"""The number of `checkpoint` decisions kept: older ones name files that are removed, and would grow with the job's age
(92 bytes per task each)."""


@dataclass(frozen=True, slots=True)
class Term:
    """One supervisor's time as the leader.

    Attributes:
        holder: the mark of the leader's directory: the next process there is the same supervisor.
        name: the name of its key; empty without keys.
        listen: where agents join it.
        job: the settings of the job, as `job.json` has them.
        graph: what the supervisor knows of the pipeline, as `topology.json` has it.
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
        """Read what `data` returned.

        Raises:
            CorruptData: it is damaged.
        """
        return cls(**_unpacked(name, data, cls.__slots__))

    @property
    def leader(self) -> str:
        """The leader as messages name it."""
        return f"{self.name or 'the supervisor'} at {self.listen} (term {self.number})"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the journal of a term.

    Attributes:
        records: decisions, in their order; none where the entry only shows that the leader lives.
        at_ns: the job's time at which it was written.
        whole: its records are all decisions of the job up to here that still matter.
        job, graph: what these decisions are about, as a term has them; empty where the entry is not whole.  A change
            of them is a decision, so a supervisor that inherits decisions takes them from here, not from a term.
        sealed_by: the term whose supervisor created it in the leader's place; 0 for an entry of the leader's own.
        closing: why this is the leader's last entry; empty for an ordinary one.
    """

    records: tuple[Record, ...] = ()
    at_ns: int = 0
    whole: bool = False
    sealed_by: int = 0
    closing: str = ""
    job: str = ""
    graph: str = ""

    def data(self, name: str) -> bytes:
        """Return the content of the object of that name."""
        return _packed(name, {**asdict(self), "records": [dict(record) for record in self.records]})

    @classmethod
    def read(cls, name: str, data: bytes) -> Entry:
        """Read what `data` returned.

        Raises:
            CorruptData: it is damaged.
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
    """Return the name of the entry at that place of a term's journal."""
    return f"{journal_folder(term)}/{place:010d}"


def number_of(name: str) -> int:
    """Return the number at the end of a name."""
    return int(name.rpartition("/")[2])


def necessary(records: list[Record]) -> list[Record]:
    """Return the records without those that later ones make unnecessary."""
    checkpoints = [place for place, record in enumerate(records) if record["kind"] == "checkpoint"]
    over = frozenset(checkpoints[:-CHECKPOINTS_KEPT])
    return [record for place, record in enumerate(records) if place not in over]


def _packed(name: str, content: dict[str, Any]) -> bytes:
    return seal_bytes(name.encode(), encode(content))


def _unpacked(name: str, data: bytes, fields: tuple[str, ...]) -> dict[str, Any]:
    try:
        content = decode(unseal_bytes(name.encode(), data))
        if type(content) is not dict or content.keys() != frozenset(fields):
            raise ValueError("it has other fields")
        return content
    except (PeerViolation, ValueError, TypeError) as problem:
        raise CorruptData(f"{name} in the shared store is damaged ({problem}); restore it from a copy") from None
