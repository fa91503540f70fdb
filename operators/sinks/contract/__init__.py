"""The contract of a sink, and everything that the author of a sink imports (D8).

A sink has no downstream task to hold its determinants, so its store keeps them next to the rows. A `Sink` encodes
records and opens a `SinkStore` for each of its tasks. The runtime passes one `Bundle` at a time to that store, and
reads the store's state (`StoreState`) after a failure. An `Account` decides which bundle is accepted, by the same rules
for every store; the store only makes the decision durable in one atomic step. A store may raise these errors:

    Fenced             a newer incarnation has opened the store: this process must exit
    Superseded         a newer run has begun to write the same output: the job ends with that error (`check_newest`)
    Unavailable        nothing was written, or the bundle may be rewritten: it is retried for `sink_retry_timeout_s`
    RowRefused         the row will never be accepted: the job ends, or the row is set aside (`on_error`)
    PipelineError      the user must change something first; the job ends with that error
    CorruptData        stored data does not match its digest; the job ends with that error

`operators.sinks.conformance` checks a sink; docs/guide/sinks.md shows step by step how to write one.
"""

from causal.errors import CorruptData, Fenced, PipelineError, RowRefused, Superseded, Unavailable, fenced
from causal.logs.log import LogDelta
from causal.ports import Bundle, SinkStore, StoreState, WithdrawingStore, WithdrawPoint
from operators.sinks.contract.account import Account, check_newest, foreign_rows, packed, unpacked
from operators.sinks.contract.sink import Sink, check_directory, check_writable, encode_json, lines_of

__all__ = [
    "Account",
    "Bundle",
    "CorruptData",
    "Fenced",
    "LogDelta",
    "PipelineError",
    "RowRefused",
    "Sink",
    "SinkStore",
    "StoreState",
    "Superseded",
    "Unavailable",
    "WithdrawPoint",
    "WithdrawingStore",
    "check_directory",
    "check_newest",
    "check_writable",
    "encode_json",
    "fenced",
    "foreign_rows",
    "lines_of",
    "packed",
    "unpacked",
]
