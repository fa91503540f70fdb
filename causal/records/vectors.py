"""`Vectors`: records as the columns of one Arrow record batch, which the core handles like a list of records.

Vectors have a length, and can be sliced, joined, encoded and decoded (`causal.records.columns`). Jobs without vectors
never import pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from causal.errors import PeerViolation, PipelineError, invariant
from causal.records.rows import Batch

if TYPE_CHECKING:
    import pyarrow as pa

_NEEDED = ("pyarrow", "numpy")
INSTALL_ARROW = "run `pip install -e '.[arrow]'` in the checkout"


class Vectors(Batch):
    """Rows stored as columns; never changed in place.

    Attributes:
        batch: a `pyarrow.RecordBatch` without metadata, whose types can all be encoded.
    """

    __slots__ = ("batch",)

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    @classmethod
    def of(cls, rows: Any) -> Vectors:
        """Return the vectors of a record batch, a table, or a dict of columns.

        Raises:
            NotCarried: a type cannot be encoded, two columns have the same name, or the object is of another type.
        """
        from causal.records.columns import carried

        return cls(carried(rows))

    def __len__(self) -> int:
        rows: int = self.batch.num_rows
        return rows

    def __getitem__(self, place: slice | int) -> Any:
        """Return the vectors of a range of rows; for an index, return that row as a dict, for messages."""
        if isinstance(place, int):
            return self.batch.slice(place, 1).to_pylist()[0]
        start, stop, step = place.indices(len(self))
        invariant(step == 1, "vectors are sliced in ranges", step=step)
        return Vectors(self.batch.slice(start, max(0, stop - start)))

    def encode(self) -> bytes:
        """Encode the rows; equal rows have equal bytes, regardless of the batch from which they were sliced."""
        from causal.records.columns import encode

        return encode(self.batch)

    def joined(self, pieces: Sequence[Vectors]) -> Vectors:
        from causal.records.columns import joined

        return Vectors(joined([piece.batch for piece in pieces]))

    @classmethod
    def decode(cls, body: bytes | memoryview) -> Vectors:
        """Decode and check the bytes that `encode` returned; the columns are views of `body`.

        Raises:
            PeerViolation: the bytes are not encoded vectors, or pyarrow is not installed.
        """
        try:
            from causal.records.columns import decode
        except ImportError as problem:
            raise PeerViolation(
                f"vectors have arrived, but this process cannot read them ({problem}); {INSTALL_ARROW}"
            ) from None
        return cls(decode(body))


def require_arrow(what: str) -> None:
    """Check that Arrow is installed.

    Raises:
        PipelineError: pyarrow or NumPy is not installed, although `what` needs them.
    """
    missing = [package for package in _NEEDED if find_spec(package) is None]
    if missing:
        raise PipelineError(f"{what} needs {' and '.join(missing)}; {INSTALL_ARROW}")
