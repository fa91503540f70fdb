"""Objects as the input of a `FilesSource`: their patterns and listings, and the thread that waits for their store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import islice

from causal.errors import DeterminantsLost, OperatorFailed, PipelineError, Unavailable
from causal.storage.directory import Directory
from causal.storage.objects import Objects
from causal.storage.shared import EXTRA, Depot
from operators.source import PartitionReader, SourceContext
from operators.sources.files.ahead_reader import AheadReader
from operators.sources.files.file_places import PlaceInCheckpoint
from operators.sources.files.listing import FileJournal, Finder
from operators.sources.files.object_patterns import object_patterns
from operators.sources.files.stored_objects import ListedObject, StoredObjects

VERIFIED = 8
"""The number of objects of a partition that are looked at before a job returns to them; the oldest go first."""

Journal = Callable[[Objects, Finder], FileJournal]
"""Returns the listings in a storage."""


class ObjectInput:
    """The objects that a source reads.

    Args:
        where: the place of the source in the pipeline, for messages.
        written: the patterns, all of which are URLs.
        options: settings of the clients that take precedence over the environment.

    Raises:
        PipelineError: a pattern or an option is wrong, or the client library is not installed.
    """

    def __init__(self, where: str, written: Sequence[str], options: Mapping[str, str]) -> None:
        if not all(isinstance(each, str) for option in options.items() for each in option):
            raise PipelineError(f"{where} has options that are not text; use names and values as in the environment")
        self._patterns = object_patterns(where, written)
        self._where = where
        self._options = dict(options)
        if find_spec("obstore") is None:
            raise PipelineError(f"{where} needs obstore for objects; run `pip install 'causal-streams[{EXTRA}]'`")

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns as they are written."""
        return tuple(pattern.text for pattern in self._patterns)

    def finder(self) -> StoredObjects:
        """Return a finder of the objects, which connects when it is used."""
        return StoredObjects(self._patterns, self._options)

    def matching(self, may_be_none: bool) -> Iterator[ListedObject]:
        """Yield the objects that match now.

        Raises:
            OperatorFailed: the job may not list them.
            PipelineError: none matches one of the patterns.
            Unavailable: the store does not answer.
        """
        finder = self.finder()
        for pattern in self._patterns:
            entry = None
            for entry in finder.matching(pattern):
                yield finder.listed(f"{pattern.store}/{entry.key}", entry.size, entry.etag, 0)
            if entry is None and not may_be_none:
                raise PipelineError(f"{self._where}: no object matches {pattern.text}")

    def ahead(
        self,
        partition: int,
        context: SourceContext,
        reader: Callable[[Objects, Finder, PlaceInCheckpoint], PartitionReader],
    ) -> AheadReader:
        """Return a reader of a partition that performs `reader` in a thread."""
        name = f"source {context.name!r}, partition {partition}"
        return AheadReader(lambda: reader(_storage(context), self.finder(), PlaceInCheckpoint(context)), name)

    def check_readable(self, partition: int, partitions: int, context: SourceContext, journal: Journal) -> None:
        """Raise `PipelineError` if one of the first objects that would be read again has changed or is gone."""
        try:
            place = PlaceInCheckpoint(context).load()
            needed = (
                file
                for number, listing in journal(_storage(context), self.finder()).listings(place.listing)
                for index, file in enumerate(listing.files)
                if file.number % partitions == partition and (number, index) >= (place.listing, place.index)
            )
            for file in islice(needed, VERIFIED):
                file.verify()
        except (DeterminantsLost, OperatorFailed, Unavailable) as problem:
            raise PipelineError(f"source {context.name!r}, partition {partition}: {problem}") from None


def _storage(context: SourceContext) -> Objects:
    """Return the storage of the listings: the store that the job's hosts share, or else the job's directory."""
    if context.store:
        return Depot(context.store, context.place_in_store, proof="")
    return Directory(context.job_directory)
